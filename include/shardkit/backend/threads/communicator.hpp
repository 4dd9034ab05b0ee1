// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include <shardkit/backend/host/host_stream.hpp>
#include <shardkit/backend/host/rank_order_reduction.hpp>
#include <shardkit/backend/shared/verbs.hpp>
#include <shardkit/backend/threads/group.hpp>
#include <shardkit/backend/threads/rendezvous.hpp>
#include <shardkit/backend/threads/split.hpp>
#include <shardkit/backend/threads/world.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/traffic_log.hpp>
#include <shardkit/comm/uneven_counts.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::threads {

/// A rank's end of a group of ranks that are threads of this process. Verbs publish pointers, read the peers' memory
/// directly and reduce in rank order, without staging copies or allocation. On a default stream they return when the
/// data is there. On a stream of the rank, with LaunchOptions::overlap, they return at once: the rank must keep their
/// memory until it has waited for them, and the next wait throws an error.
///
/// It is a cheap handle, valid until the function given to `launch` returns, and used only by its rank's thread. A
/// group that a split made is freed with the last handles of its members. The verbs' contracts are those of the
/// functions in comm/, which also check the sizes.
/// Order:   calls over the same ranks meet in the order of their stream: all ranks must give a call to the same
///          stream, and streams do not wait for each other.
/// Errors: PeerError when a rank failed or returned early, or all ranks wait for each other; CommError, on every rank
/// and before any output is written, when the ranks' calls disagree in verb, type, count, operation or root.
class Communicator {
  public:
    using Stream = host::HostStream;

    Communicator(detail::World& world, detail::Group& group, std::size_t rank, std::string_view axes)
        : Communicator(world, group, rank, axes, {}) {}

    std::size_t rank() const noexcept { return handle_.rank; }
    std::size_t size() const noexcept { return handle_.group->size(); }
    std::string_view axes() const noexcept { return handle_.label->axes; }
    const engine::CommunicatorLabel& label() const noexcept { return *handle_.label; }
    /// Returns the calls that this rank has given to its streams, over all its communicators. Does not wait.
    TrafficLog& traffic() const noexcept { return handle_.label->journal.traffic(); }

    /// Returns the stream of verbs that are given none: they are done when they return.
    Stream compute_stream() const noexcept { return {}; }
    /// Returns the rank's stream on which gathers run while the rank goes on; default ones without
    /// LaunchOptions::overlap.
    Stream communication_stream() const noexcept {
        return handle_.world->state(handle_).stream(detail::Caller::communication);
    }
    Stream reduction_stream() const noexcept {
        return handle_.world->state(handle_).stream(detail::Caller::reduction);
    }

    Communicator named(std::string_view axes) const {
        Communicator other = *this;
        other.handle_.label = &handle_.label->journal.label(axes, handle_.group->world_ranks());
        return other;
    }

    // Some members are templates, so that a file without collectives compiles none of the code of a round.
    template <std::convertible_to<std::string_view> Axes>
    Communicator split(std::size_t color, std::size_t key, const Axes& axes, const shardkit::Call& call) const {
        const detail::SplitResult result = detail::split_group(handle_, color, key, call);
        return Communicator(*handle_.world, *result.group, result.rank, axes, result.group);
    }

    template <std::same_as<Stream> S>
    void barrier(const S& stream, const shardkit::Call& call) const {
        collective(stream, call, {.copy = [](const detail::Round&, const Shown&) {}});
    }

    template <Element T>
    void all_gather(std::span<const T> shard, std::span<T> full, const Stream& stream,
                    const shardkit::Call& call) const {
        const auto copy = [](const detail::Round& round, const Shown& shown) {
            const std::span bytes(static_cast<std::byte*>(shown.written), shown.count);
            shared::detail::all_gather(round, static_cast<const std::byte*>(shown.read), bytes);
        };
        collective(stream, call, {shard.data(), shard.size_bytes(), full.data(), full.size_bytes(), 0, copy});
    }

    template <Element In, Element Out>
    std::size_t reduce_scatter(ReduceOp op, std::span<const In> full, std::span<Out> shard, const Stream& stream,
                               const shardkit::Call& call) const {
        const auto copy = [](const detail::Round& round, const Shown& shown) {
            const std::span all(static_cast<const In*>(shown.read), shown.count);
            shared::detail::reduce_scatter(round, ReduceOp(shown.argument), all, static_cast<Out*>(shown.written));
        };
        collective(stream, call,
                   {full.data(), full.size_bytes(), shard.data(), full.size(), static_cast<std::size_t>(op), copy});
        return (size() - 1) * shard.size() * sizeof(In);
    }

    /// Reduces one chunk per rank and writes it to all ranks, so the moved bytes depend on the size of a rank's
    /// chunk. Chunks are equal if the count is a multiple of the ranks times 128 bytes. Inputs of up to
    /// `carried_bytes` are reduced completely by every rank.
    template <Element In, Element Out>
    std::size_t all_reduce(ReduceOp op, std::span<const In> input, std::span<Out> output, const Stream& stream,
                           const shardkit::Call& call) const {
        const auto copy = [](const detail::Round& round, const Shown& shown) {
            shared::detail::all_reduce<In>(round, ReduceOp(shown.argument), shown.count,
                                           static_cast<Out*>(shown.written));
        };
        collective(
            stream, call,
            {input.data(), input.size_bytes(), output.data(), input.size(), static_cast<std::size_t>(op), copy});
        if (input.size_bytes() <= detail::carried_bytes) { return (size() - 1) * input.size_bytes(); }
        const host::detail::Chunk own =
            host::detail::chunk_of(input.size(), std::min(sizeof(In), sizeof(Out)), rank(), size());
        return (size() - 1) * own.size() * (sizeof(In) + sizeof(Out));
    }

    template <Element T>
    void broadcast(std::span<T> values, std::size_t root, const Stream& stream, const shardkit::Call& call) const {
        const auto copy = [](const detail::Round& round, const Shown& shown) {
            shared::detail::broadcast(round, std::span(static_cast<T*>(shown.written), shown.count), shown.argument);
        };
        collective(stream, call, {values.data(), values.size_bytes(), values.data(), values.size(), root, copy});
    }

    template <Element T>
    void all_to_all(std::span<const T> sent, std::span<T> received, const Stream& stream,
                    const shardkit::Call& call) const {
        const auto copy = [](const detail::Round& round, const Shown& shown) {
            shared::detail::all_to_all(round, std::span(static_cast<const T*>(shown.read), shown.count),
                                       std::span(static_cast<T*>(shown.written), shown.count));
        };
        collective(stream, call, {sent.data(), sent.size_bytes(), received.data(), sent.size(), 0, copy});
    }

    template <Element T>
    void all_to_all_uneven(std::span<const T> sent, std::span<const std::size_t> send_counts, std::span<T> received,
                           std::span<const std::size_t> receive_counts, const Stream& stream,
                           const shardkit::Call& call) const {
        execute(stream, call, [=](const detail::GroupHandle& handle, const shardkit::Call& made) {
            const detail::Seat seat(handle);
            const detail::UnevenInput shown{
                {sent.data(), sent.size_bytes(),
                 shardkit::detail::count_balance(seat.rank(), {send_counts, receive_counts})},
                send_counts.data(),
                receive_counts.data()};
            detail::Round round(seat, made, &shown, sizeof shown);
            if (!round.agreed()) { round.leave_and_throw(); }
            detail::require_matching_counts(handle, round);
            shared::detail::all_to_all_uneven(round, seat.rank(), received, receive_counts, [&](std::size_t q) {
                return static_cast<const T*>(round.input<detail::UnevenInput>(q)->sent) +
                       detail::begin_of_piece(round, q);
            });
            round.meet();
        });
    }

    template <Element T>
    void send(std::span<const T> values, std::size_t to, const Stream& stream, const shardkit::Call& call) const {
        execute(stream, call, [=](const detail::GroupHandle& handle, const shardkit::Call& made) {
            detail::Post(handle, to, {made, values.data()}).complete();
        });
    }

    template <Element T>
    void receive(std::span<T> values, std::size_t from, const Stream& stream, const shardkit::Call& call) const {
        execute(stream, call, [=](const detail::GroupHandle& handle, const shardkit::Call& made) {
            detail::take(handle, from, values.data(), made);
        });
    }

    template <Element T>
    void send_receive(std::span<const T> sent, std::size_t to, std::span<T> received, std::size_t from,
                      const Stream& stream, const shardkit::Call& call) const {
        execute(stream, call, [=](const detail::GroupHandle& handle, const shardkit::Call& made) {
            detail::Post post(handle, to, {made, sent.data()});
            shardkit::Call receives = made;
            receives.signature.verb = Verb::receive;
            receives.signature.count = received.size();
            detail::take(handle, from, received.data(), receives);
            post.complete();
        });
    }

  private:
    Communicator(detail::World& world, detail::Group& group, std::size_t rank, std::string_view axes,
                 shardkit::detail::Counted<detail::Group> kept)
        : handle_{&world, &group, rank, nullptr, nullptr}, kept_(std::move(kept)) {
        detail::RankState& state = world.state(handle_);
        handle_.label = &state.journal.label(axes, group.world_ranks());
        handle_.thread = &state;
    }

    /// Runs work(handle, call) in the order of the stream, a default one or one of the rank's, with the handle of the
    /// thread that runs it: the stream's, or the rank's own.
    /// @throws UsageError when the stream is none of these; an exception of the work in this thread
    template <class Work>
    void execute(const Stream& stream, const shardkit::Call& call, const Work& work) const {
        if (stream.is_inline()) {
            work(handle_, call);
            return;
        }
        const detail::Caller caller = handle_.world->owner(stream, handle_, call.where);
        detail::GroupHandle of_stream = handle_;
        of_stream.group = &handle_.group->of(caller);
        of_stream.thread = &handle_.world->state(handle_).thread(caller);
        handle_.group->begin_use();
        handle_.label->journal.recorder().queue(call);
        stream.submit([of_stream, used = handle_.group, call, work] {
            const detail::Group::EndUse ends{*used};
            auto& recorder = of_stream.label->journal.recorder();
            recorder.begun(call);
            work(of_stream, call);
            recorder.done(call);
        });
    }

    /// A collective without its types: the memory of this rank that peers read and write, and what moves the data.
    struct Shown {
        const void* read = nullptr;
        std::size_t read_bytes = 0;
        void* written = nullptr;
        std::size_t count = 0;     ///< elements, of which `copy` knows the buffer
        std::size_t argument = 0;  ///< the operation, or the root
        void (*copy)(const detail::Round& round, const Shown& shown) = nullptr;
    };

    /// Does the work of all collectives, a template as above.
    template <std::same_as<Stream> S>
    void collective(const S& stream, const shardkit::Call& call, const Shown& shown) const {
        execute(stream, call, [shown](const detail::GroupHandle& handle, const shardkit::Call& made) {
            const detail::Seat seat(handle);
            detail::Round round(seat, made, shown.read, shown.read_bytes, shown.written);
            if (!round.agreed()) { round.leave_and_throw(); }
            shown.copy(round, shown);
            round.leave();
        });
    }

    detail::GroupHandle handle_;
    shardkit::detail::Counted<detail::Group> kept_;  // null for the world's group
};

}  // namespace shardkit::threads
