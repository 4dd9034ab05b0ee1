// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <shardkit/backend/host/rank_order_reduction.hpp>
#include <shardkit/backend/shared/verbs.hpp>
#include <shardkit/backend/threads/rendezvous.hpp>
#include <shardkit/backend/threads/split.hpp>
#include <shardkit/backend/threads/world.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/comm/traffic_log.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::threads {

/// A rank's end of a group of ranks that are threads of this process. Verbs publish pointers, read the peers' memory
/// directly and reduce in rank order; no staging copy, no allocation. They return when the data is there.
///
/// A cheap handle, valid until the function given to `launch` returns, used by its rank's thread only. What a split
/// made is freed with the last handles of its members. The verbs'
/// contracts are those of the functions in comm/, which also check the sizes.
/// Errors: PeerError when a rank failed, returned early or all ranks wait for each other; CommError, on every rank
/// and before any output is written, when the ranks' calls disagree in verb, type, count, operation or root.
class Communicator {
  public:
    using Stream = InlineStream;

    Communicator(detail::World& world, detail::Group& group, std::size_t rank, std::string_view axes)
        : Communicator(world, group, rank, axes, nullptr) {}

    std::size_t rank() const noexcept { return handle_.rank; }
    std::size_t size() const noexcept { return handle_.group->size(); }
    std::string_view axes() const noexcept { return handle_.label->axes; }
    const CommunicatorLabel& label() const noexcept { return *handle_.label; }
    /// What this rank has communicated, over all its communicators.
    TrafficLog& traffic() const noexcept { return handle_.label->journal.traffic(); }

    Communicator named(std::string_view axes) const {
        Communicator other = *this;
        other.handle_.label = &handle_.label->journal.label(axes);
        return other;
    }

    // Members are templates where they need what a round compiles, so that a file without collectives compiles none.
    template <std::convertible_to<std::string_view> Axes>
    Communicator split(std::size_t color, std::size_t key, const Axes& axes, const shardkit::Call& call) const {
        const detail::SplitResult result = detail::split_group(handle_, color, key, call);
        return Communicator(*handle_.world, *result.group, result.rank, axes, result.group);
    }

    template <std::same_as<Stream> S>
    void barrier(S, const shardkit::Call& call) const {
        collective(call, nullptr, 0, nullptr, [](const detail::Round&) {});
    }

    template <Element T>
    void all_gather(std::span<const T> shard, std::span<T> full, Stream, const shardkit::Call& call) const {
        gather(shard.data(), full, call);
    }

    template <Element T>
    void all_gather_in_place(std::span<T> full, Stream, const shardkit::Call& call) const {
        gather(static_cast<const T*>(full.data() + rank() * (full.size() / size())), full, call);
    }

    template <Element In, Element Out>
    std::size_t reduce_scatter(ReduceOp op, std::span<const In> full, std::span<Out> shard, Stream,
                               const shardkit::Call& call) const {
        return scatter(op, full, shard.data(), call);
    }

    template <Element T>
    std::size_t reduce_scatter_in_place(ReduceOp op, std::span<T> full, Stream, const shardkit::Call& call) const {
        return scatter(op, std::span<const T>(full), full.data() + rank() * (full.size() / size()), call);
    }

    /// Each rank reduces one chunk and writes it to all ranks, so what a rank moves depends on its chunk's size; the
    /// chunks are equal when the count divides by the ranks and 128 bytes. Up to `carried_bytes` every rank reduces
    /// everything.
    template <Element In, Element Out>
    std::size_t all_reduce(ReduceOp op, std::span<const In> input, std::span<Out> output, Stream,
                           const shardkit::Call& call) const {
        return collective(call, input.data(), input.size_bytes(), output.data(), [&](const detail::Round& round) {
            shared::detail::all_reduce<In>(round, op, input.size(), output.data());
            if (round.carried()) { return (size() - 1) * input.size_bytes(); }
            const host::detail::Chunk own =
                host::detail::chunk_of(input.size(), std::min(sizeof(In), sizeof(Out)), rank(), size());
            return (size() - 1) * own.size() * (sizeof(In) + sizeof(Out));
        });
    }

    template <Element T>
    std::size_t all_reduce_in_place(ReduceOp op, std::span<T> values, Stream stream,
                                    const shardkit::Call& call) const {
        return all_reduce(op, std::span<const T>(values), values, stream, call);
    }

    template <Element T>
    void broadcast(std::span<T> values, std::size_t root, Stream, const shardkit::Call& call) const {
        collective(call, values.data(), values.size_bytes(), values.data(),
                   [&](const detail::Round& round) { shared::detail::broadcast(round, values, root); });
    }

    template <Element T>
    void all_to_all(std::span<const T> sent, std::span<T> received, Stream, const shardkit::Call& call) const {
        collective(call, sent.data(), sent.size_bytes(), nullptr,
                   [&](const detail::Round& round) { shared::detail::all_to_all(round, sent, received); });
    }

    template <Element T>
    void send(std::span<const T> values, std::size_t to, Stream, const shardkit::Call& call) const {
        detail::Post(handle_, to, {.signature = call.signature, .data = values.data(), .where = call.where})
            .complete();
    }

    template <Element T>
    void receive(std::span<T> values, std::size_t from, Stream, const shardkit::Call& call) const {
        detail::take(handle_, from, values.data(), call);
    }

    template <Element T>
    void send_receive(std::span<const T> sent, std::size_t to, std::span<T> received, std::size_t from, Stream,
                      const shardkit::Call& call) const {
        detail::Post post(handle_, to, {.signature = call.signature, .data = sent.data(), .where = call.where});
        shardkit::Call receives = call;
        receives.signature.verb = Verb::receive;
        receives.signature.count = received.size();
        detail::take(handle_, from, received.data(), receives);
        post.complete();
    }

  private:
    Communicator(detail::World& world, detail::Group& group, std::size_t rank, std::string_view axes,
                 std::shared_ptr<detail::Group> kept)
        : handle_{&world, &group, rank, &world.state(group.world_ranks()[rank]).journal.label(axes),
                  std::move(kept)} {}

    /// Everything that collectives have in common; `copy(round)` moves the data. Returns what it returns.
    template <class Copy>
    std::invoke_result_t<Copy, const detail::Round&> collective(const shardkit::Call& call, const void* input,
                                                                std::size_t input_bytes, void* output,
                                                                Copy copy) const {
        const detail::Seat seat(handle_);
        detail::Round round(seat, call, input, input_bytes, output);
        if (!round.agreed()) { round.leave_and_throw(); }
        if constexpr (std::is_void_v<std::invoke_result_t<Copy, const detail::Round&>>) {
            copy(static_cast<const detail::Round&>(round));
            round.leave();
        } else {
            const auto moved = copy(static_cast<const detail::Round&>(round));
            round.leave();
            return moved;
        }
    }

    template <class T>
    void gather(const T* shard, std::span<T> full, const shardkit::Call& call) const {
        const std::size_t bytes = full.size() / size() * sizeof(T);
        collective(call, shard, bytes, full.data(),
                   [&](const detail::Round& round) { shared::detail::all_gather(round, shard, full); });
    }

    template <class In, class Out>
    std::size_t scatter(ReduceOp op, std::span<const In> full, Out* shard, const shardkit::Call& call) const {
        return collective(call, full.data(), full.size_bytes(), shard, [&](const detail::Round& round) {
            shared::detail::reduce_scatter(round, op, full, shard);
            return (size() - 1) * (full.size() / size()) * sizeof(In);
        });
    }

    detail::GroupHandle handle_;
};

}  // namespace shardkit::threads
