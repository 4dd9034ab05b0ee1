// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/backend/host/decorated_verbs.hpp>
#include <shardkit/backend/host/memory.hpp>
#include <shardkit/backend/host/verbs.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/recorder.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/communicator.hpp>

#include "faults/fault_plan.hpp"

namespace planted {

using shardkit::Call;
namespace host = shardkit::host;

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
    template <class Verb, class Spoil>
    void make(shardkit::detail::Recorder& recorder, const Call& call, std::size_t delivered, const Verb& verb,
              const Spoil& spoil) {
        if (gone_) { throw RankLeaves(); }
        verb();
        strike(recorder, call, delivered, spoil);
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
    template <class Spoil>
    void strike(shardkit::detail::Recorder& recorder, const Call& call, std::size_t delivered, const Spoil& spoil) {
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
                const std::string told = note(
                    found, shardkit::detail::concat("call ", number, ", ",
                                                    shardkit::describe(call.signature, call.where,
                                                                       shardkit::detail::text_of(call.subject))));
                if (spoils) {
                    spoil(found.value % (std::uint64_t{delivered} * 8));
                } else {
                    // A rank goes wrong behind the call: its flight recorder says that it is over.
                    recorder.end(call);
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

/// The verbs of an engine, which go wrong as a plan says. What is no verb and no buffer is the engine's.
class FaultyVerbs final : public host::DecoratedVerbs {
  public:
    FaultyVerbs(std::shared_ptr<const host::Verbs> verbs, RankFaults& faults)
        : host::DecoratedVerbs(std::move(verbs)), faults_(&faults) {}

    /// Places memory as the engine does, unless a fault says that there is none.
    std::shared_ptr<void> place(std::size_t bytes) const override {
        faults_->allocate(bytes);
        return host::DecoratedVerbs::place(bytes);
    }
    std::shared_ptr<void> place_local(std::size_t bytes) const override {
        faults_->allocate(bytes);
        return host::DecoratedVerbs::place_local(bytes);
    }

  private:
    /// Makes a call, and spoils what it delivers if the plan says so, behind it in the stream.
    void around(const Call& call, host::Memory delivered, const shardkit::Stream& stream,
                const Inner& inner) const override {
        faults_->make(label().journal.recorder(), call, delivered.bytes(), inner, [&](std::uint64_t bit) {
            auto* const byte = delivered.at + bit / 8;
            const auto mask = static_cast<std::byte>(1U << bit % 8);
            stream.submit([byte, mask] { *byte ^= mask; });
        });
    }
    std::shared_ptr<const host::Verbs> decorate(std::shared_ptr<const host::Verbs> verbs) const override {
        return std::make_shared<const FaultyVerbs>(std::move(verbs), *faults_);
    }

    RankFaults* faults_;
};

}  // namespace detail

/// Calls f(faulty) with a rank that has the place, mesh, streams and options of `rank`, and its engine, whose verbs
/// go wrong as `faults` say for this rank. Inside of an engine's `run`:
///     sk::threads::run(mesh, [&](auto& rank) { planted::with_faults(rank, faults, train); });
/// Order:   collective over the ranks, as they share what f does
/// @throws  what f throws
template <class Mesh, class F>
void with_faults(shardkit::MeshRank<Mesh>& rank, Faults& faults, F&& f,
                 shardkit::SourceLocation where = shardkit::SourceLocation::current()) {
    detail::RankFaults own(faults, rank.rank(), rank.world_size());
    try {
        const shardkit::Communicator world(std::make_shared<const detail::FaultyVerbs>(rank.world().verbs(), own));
        shardkit::MeshRank<Mesh> faulty{rank.mesh(), world, rank.options(), rank.streams(), where};
        f(faulty);
    } catch (const detail::RankLeaves&) {}  // NOLINT(bugprone-empty-catch): it has returned
}

}  // namespace planted
