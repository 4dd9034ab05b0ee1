// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/comm/all_gather.hpp>
#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/comm/all_to_all.hpp>
#include <shardkit/comm/broadcast.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/reduce_scatter.hpp>
#include <shardkit/comm/send_receive.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/rank/engine.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/testing/fault_plan.hpp>

namespace shardkit::testing {

/// The error of a fault of kind `error`. The text names the rank and the call.
class PlantedFault : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

namespace detail {
class RankFaults;
}

/// A plan of faults, and what has become of it: which have struck, and how many calls and buffers the ranks made. The
/// ranks of one process share it, and it must outlive them.
class Faults : shardkit::detail::NotCopied {
  public:
    /// A fault that has struck.
    struct Struck {
        Fault fault;
        std::string what;  ///< "rank 1: error after call 17, all_gather of 4 fp32 at train.cpp:12"
        std::chrono::steady_clock::time_point when;
    };
    /// Makes the faults of a plan. `on_strike` is told of each one before the rank goes wrong, in the rank's thread,
    /// by one rank at a time; it must not throw.
    explicit Faults(FaultPlan plan = {}, std::function<void(const Struck&)> on_strike = {})
        : plan_(std::move(plan)), on_strike_(std::move(on_strike)) {}

    const FaultPlan& plan() const noexcept { return plan_; }
    /// Returns the faults that have struck in this process, in their order.
    std::vector<Struck> struck() const {
        const std::lock_guard lock(mutex_);
        return struck_;
    }
    /// The numbers of calls and of buffers of one rank.
    struct Count {
        std::uint64_t calls = 0;
        std::uint64_t buffers = 0;
    };
    /// Returns the most calls and the most buffers that a rank of this process has made: what a FaultChoice needs.
    Count most() const {
        const std::lock_guard lock(mutex_);
        return most_;
    }

  private:
    friend detail::RankFaults;

    FaultPlan plan_;
    std::function<void(const Struck&)> on_strike_;
    mutable std::mutex mutex_;  // guards the following members
    std::vector<Struck> struck_;
    Count most_;
    std::size_t begun_ = 0;  // ranks of this process
    std::size_t ended_ = 0;  // those of them that make no call any more
};

namespace detail {

/// Ends a rank's function without an error. No std::exception, so that no handler of a trainer's own takes it.
struct RankLeaves {};

/// Flips bits of one byte, in the order of a stream.
struct FlipBits {
    std::uint8_t* byte;
    std::uint8_t mask;
    constexpr void operator()() const { *byte = static_cast<std::uint8_t>(*byte ^ mask); }
};

/// The faults of one rank; used by its thread.
class RankFaults : shardkit::detail::NotCopied {
  public:
    RankFaults(Faults& faults, std::size_t rank, std::size_t ranks) : faults_(faults), rank_(rank), ranks_(ranks) {
        const std::lock_guard lock(faults_.mutex_);
        ++faults_.begun_;
        for (const Fault& fault : faults_.plan_) {
            if (fault.rank == rank_) { waiting_.push_back(fault); }
        }
    }
    ~RankFaults() {
        const std::lock_guard lock(faults_.mutex_);
        faults_.most_.calls = std::max(faults_.most_.calls, made_.calls);
        faults_.most_.buffers = std::max(faults_.most_.buffers, made_.buffers);
        if (!hangs_) { ++faults_.ended_; }
    }

    /// Makes a call by `verb` that delivers `delivered` bytes, and counts it. Behind it spoil(bit) flips a bit of
    /// them where the plan says so, and the rank goes wrong.
    template <class C, class Verb, class Spoil>
    auto make(const C& comm, const Call& call, std::size_t delivered, const Verb& verb, const Spoil& spoil) {
        if (gone_) { throw RankLeaves(); }
        if constexpr (std::is_void_v<std::invoke_result_t<const Verb&>>) {
            verb();
            strike(comm, call, delivered, spoil);
        } else {
            auto result = verb();
            strike(comm, call, delivered, spoil);
            return result;
        }
    }
    /// Counts a buffer. @throws std::bad_alloc where one is planted
    void allocate(std::size_t bytes) {
        const std::uint64_t number = made_.buffers++;
        for (const Fault& fault : waiting_) {
            if (fault.kind != FaultKind::out_of_memory || fault.at != number) { continue; }
            note(fault, shardkit::detail::concat("buffer ", number, " of ", bytes, " bytes"));
            throw std::bad_alloc();
        }
    }

  private:
    template <class C, class Spoil>
    void strike(const C& comm, const Call& call, std::size_t delivered, const Spoil& spoil) {
        const std::uint64_t number = made_.calls++;
        const auto data = [](const Fault& fault) { return fault.kind == FaultKind::wrong_data; };
        const auto due = [&](const Fault& fault) {
            return fault.kind != FaultKind::out_of_memory &&
                   (data(fault) ? fault.at <= number && delivered > 0 : fault.at == number);
        };
        // Data first: another fault may end the rank.
        for (const bool spoils : {true, false}) {
            for (auto fault = waiting_.begin(); fault != waiting_.end();) {
                if (data(*fault) != spoils || !due(*fault)) {
                    ++fault;
                    continue;
                }
                const Fault found = *fault;
                fault = waiting_.erase(fault);
                const std::string told =
                    note(found, shardkit::detail::concat(
                                    "call ", number, ", ",
                                    describe(call.signature, call.where, shardkit::detail::text_of(call.subject))));
                if (spoils) {
                    spoil(found.value % (std::uint64_t{delivered} * 8));
                } else {
                    // A rank goes wrong behind the call: its flight recorder says that it is over.
                    if constexpr (engine::KeepsJournal<C>) { comm.label().journal.recorder().end(call); }
                    go_wrong(found, told);
                }
            }
        }
    }
    std::string note(const Fault& fault, const std::string& what) {
        std::string told = shardkit::detail::concat(
            "rank ", rank_, ": ", name(fault.kind),
            fault.kind == FaultKind::wrong_data || fault.kind == FaultKind::out_of_memory ? " in " : " after ", what);
        const std::lock_guard lock(faults_.mutex_);
        faults_.struck_.push_back({fault, told, std::chrono::steady_clock::now()});
        if (faults_.on_strike_) { faults_.on_strike_(faults_.struck_.back()); }
        return told;
    }
    void go_wrong(const Fault& fault, const std::string& told) {
        if (fault.kind == FaultKind::delay) { std::this_thread::sleep_for(std::chrono::milliseconds(fault.value)); }
        if (fault.kind == FaultKind::error) { throw PlantedFault(shardkit::detail::concat("planted: ", told)); }
        if (fault.kind == FaultKind::kill) { std::raise(SIGKILL); }
        if (fault.kind == FaultKind::hang) { hang(); }
        if (fault.kind == FaultKind::leave || fault.kind == FaultKind::hang) {
            gone_ = true;
            throw RankLeaves();
        }
    }
    /// Waits until no rank of this process makes calls any more. Where ranks are processes, its end ends it.
    void hang() {
        hangs_ = true;
        std::unique_lock lock(faults_.mutex_);
        ++faults_.ended_;
        while (faults_.begun_ < ranks_ || faults_.ended_ < ranks_) {
            lock.unlock();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            lock.lock();
        }
    }

    Faults& faults_;
    std::size_t rank_;
    std::size_t ranks_;
    Faults::Count made_;
    std::vector<Fault> waiting_;
    bool gone_ = false;
    bool hangs_ = false;
};

}  // namespace detail

/// The communicator of a Faulty engine: that of the engine E, whose verbs go wrong as a plan says. What is no verb
/// and no buffer is E's.
template <class E>
class FaultyCommunicator : public E::Communicator {
    using Base = typename E::Communicator;

  public:
    using Stream = typename E::Stream;

    FaultyCommunicator(Base base, detail::RankFaults& faults) : Base(std::move(base)), faults_(&faults) {}

    FaultyCommunicator named(std::string_view axes) const { return {Base::named(axes), *faults_}; }
    FaultyCommunicator split(std::size_t color, std::size_t key, std::string_view axes, const Call& call) const {
        return {faults_->make(
                    *this, call, 0, [&]() -> Base { return Base::split(color, key, axes, call); }, [](auto) {}),
                *faults_};
    }
    void barrier(const Stream& stream, const Call& call) const {
        faults_->make(
            *this, call, 0, [&] { Base::barrier(stream, call); }, [](auto) {});
    }

    template <Element T>
    requires(engine::AllGathers<Base, T>) auto all_gather(std::span<const T> shard, std::span<T> full,
                                                          const Stream& stream, const Call& call) const {
        return deliver(full, stream, call, [&] { return Base::all_gather(shard, full, stream, call); });
    }
    template <Element In, Element Out>
    requires(engine::ReduceScatters<Base, In, Out>) auto reduce_scatter(ReduceOp op, std::span<const In> full,
                                                                        std::span<Out> shard, const Stream& stream,
                                                                        const Call& call) const {
        return deliver(shard, stream, call, [&] { return Base::reduce_scatter(op, full, shard, stream, call); });
    }
    template <Element In, Element Out>
    requires(engine::AllReduces<Base, In, Out>) auto all_reduce(ReduceOp op, std::span<const In> input,
                                                                std::span<Out> output, const Stream& stream,
                                                                const Call& call) const {
        return deliver(output, stream, call, [&] { return Base::all_reduce(op, input, output, stream, call); });
    }
    template <Element T>
    requires(engine::Broadcasts<Base, T>) auto broadcast(std::span<T> values, std::size_t root, const Stream& stream,
                                                         const Call& call) const {
        return deliver(values, stream, call, [&] { return Base::broadcast(values, root, stream, call); });
    }
    template <Element T>
    requires(engine::ExchangesAllToAll<Base, T>) auto all_to_all(std::span<const T> sent, std::span<T> received,
                                                                 const Stream& stream, const Call& call) const {
        return deliver(received, stream, call, [&] { return Base::all_to_all(sent, received, stream, call); });
    }
    template <Element T>
    requires(engine::ExchangesUnevenly<Base, T>) auto all_to_all_uneven(
        std::span<const T> sent, std::span<const std::size_t> send_counts, std::span<T> received,
        std::span<const std::size_t> receive_counts, const Stream& stream, const Call& call) const {
        return deliver(received, stream, call, [&] {
            return Base::all_to_all_uneven(sent, send_counts, received, receive_counts, stream, call);
        });
    }
    template <Element T>
    requires(engine::SendsAndReceives<Base, T>) auto send(std::span<const T> values, std::size_t to,
                                                          const Stream& stream, const Call& call) const {
        return deliver(std::span<T>(), stream, call, [&] { return Base::send(values, to, stream, call); });
    }
    template <Element T>
    requires(engine::SendsAndReceives<Base, T>) auto receive(std::span<T> values, std::size_t from,
                                                             const Stream& stream, const Call& call) const {
        return deliver(values, stream, call, [&] { return Base::receive(values, from, stream, call); });
    }
    template <Element T>
    requires(engine::SendsAndReceives<Base, T>) auto send_receive(std::span<const T> sent, std::size_t to,
                                                                  std::span<T> received, std::size_t from,
                                                                  const Stream& stream, const Call& call) const {
        return deliver(received, stream, call,
                       [&] { return Base::send_receive(sent, to, received, from, stream, call); });
    }

    /// Makes memory as E does, unless a fault says that there is none.
    template <Element T>
    typename E::template Buffer<T> buffer(std::size_t n) const {
        faults_->allocate(n * sizeof(T));
        if constexpr (engine::MakesBuffers<Base, T>) {
            return typename E::template Buffer<T>(Base::template buffer<T>(n));
        } else {
            return typename E::template Buffer<T>(n);
        }
    }
    template <Element T>
    requires(engine::MakesLocalBuffers<Base, T>) typename E::template Buffer<T> local_buffer(std::size_t n) const {
        faults_->allocate(n * sizeof(T));
        return typename E::template Buffer<T>(Base::template local_buffer<T>(n));
    }

  private:
    /// Makes a call, and spoils what it delivers to `to` if the plan says so, behind it in the stream.
    template <class T, class Verb>
    auto deliver(std::span<T> to, const Stream& stream, const Call& call, const Verb& verb) const {
        return faults_->make(*this, call, to.size_bytes(), verb, [&](std::uint64_t bit) {
            auto* const bytes = static_cast<std::uint8_t*>(static_cast<void*>(to.data()));
            const detail::FlipBits flip{bytes + bit / 8, static_cast<std::uint8_t>(1U << bit % 8)};
            if constexpr (shardkit::detail::RunsOnce<E>) {
                E::Kernels::run_once(stream, flip);
            } else {
                stream.synchronize();
                flip();
            }
        });
    }

    detail::RankFaults* faults_;
};

/// An engine that does what the engine E does, and goes wrong as a plan says: for tests of trainers. `with_faults`
/// makes a rank of it.
template <class E>
struct Faulty : E {
    using Communicator = FaultyCommunicator<E>;
};

/// Calls f(faulty) with a rank that has the place, mesh, streams and options of `rank`, and the Faulty engine of its
/// engine, whose faults are those of `faults` for this rank. Inside of an engine's `run`:
///     sk::threads::run(mesh, [&](auto& rank) { sk::testing::with_faults(rank, faults, train); });
/// Order:   collective over the ranks, as they share what f does
/// @throws  what f throws
template <class R, class F>
void with_faults(R& rank, Faults& faults, F&& f, SourceLocation where = SourceLocation::current()) {
    using E = EngineOf<R>;
    detail::RankFaults own(faults, rank.rank(), rank.world_size());
    try {
        Rank<Faulty<E>, typename R::Mesh> faulty{rank.mesh(), FaultyCommunicator<E>(rank.world(), own),
                                                 rank.options(), rank.streams(), where};
        f(faulty);
    } catch (const detail::RankLeaves&) {}  // NOLINT(bugprone-empty-catch): it has returned
}

}  // namespace shardkit::testing
