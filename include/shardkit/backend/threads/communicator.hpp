// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include <shardkit/backend/host/chunk.hpp>
#include <shardkit/backend/host/rank_order_reduction.hpp>
#include <shardkit/backend/host/stream_elements.hpp>
#include <shardkit/backend/threads/call.hpp>
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
/// A cheap handle, valid until the function given to `launch` returns, used by its rank's thread only. The verbs'
/// contracts are those of the functions in comm/, which also check the sizes.
/// Errors: PeerError when a rank failed, returned early or all ranks wait for each other; CommError, on every rank
/// and before any output is written, when the ranks' calls disagree in verb, type, count, operation or root.
class Communicator {
  public:
    using Stream = InlineStream;

    Communicator(World& world, Group& group, std::size_t rank, std::string_view axes)
        : handle_{&world, &group, rank, &world.state(group.world_ranks()[rank]).journal.label(axes)} {}

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

    Communicator split(std::size_t color, std::size_t key, std::string_view axes, const shardkit::Call& call) const {
        const SplitResult result = split_group(handle_, color, key, call);
        return Communicator(*handle_.world, *result.group, result.rank, axes);
    }

    void barrier(Stream, const shardkit::Call& call) const {
        collective(call, nullptr, 0, nullptr, [](const Round&) {});
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
        return collective(call, input.data(), input.size_bytes(), output.data(), [&](const Round& round) {
            if (round.carried()) {
                host::reduce_in_rank_order<In, Out>(
                    op, size(), input.size(), [&](std::size_t q) { return input_of<In>(round, q); },
                    host::Result<Out>{output.data()});
                return (size() - 1) * input.size_bytes();
            }
            const host::Store store = host::store_for(size() * (input.size_bytes() + output.size_bytes()));
            const host::Chunk own = host::chunk_of(input.size(), std::min(sizeof(In), sizeof(Out)), rank(), size());
            host::reduce_in_rank_order<In, Out>(
                op, size(), own.size(), [&](std::size_t q) { return input_of<In>(round, q) + own.begin; }, size(),
                [&](std::size_t q) {
                    const Call& theirs = round.call(q);
                    // A result that replaces its input is in the caches already.
                    return host::Result<Out>{static_cast<Out*>(theirs.output) + own.begin,
                                             theirs.output == theirs.input ? host::Store::cached : store};
                });
            host::finish(store);
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
        collective(call, values.data(), values.size_bytes(), nullptr, [&](const Round& round) {
            if (rank() == root) { return; }
            const host::Store store = host::store_for(size() * values.size_bytes());
            host::copy_elements(input_of<T>(round, root), values.data(), values.size(), store);
            host::finish(store);
        });
    }

    template <Element T>
    void all_to_all(std::span<const T> sent, std::span<T> received, Stream, const shardkit::Call& call) const {
        collective(call, sent.data(), sent.size_bytes(), nullptr, [&](const Round& round) {
            const std::size_t k = sent.size() / size();
            const host::Store store = host::store_for(2 * size() * sent.size_bytes());
            for_each_rank_from_next([&](std::size_t q) {
                host::copy_elements(input_of<T>(round, q) + rank() * k, received.data() + q * k, k, store);
            });
            host::finish(store);
        });
    }

    template <Element T>
    void send(std::span<const T> values, std::size_t to, Stream, const shardkit::Call& call) const {
        Post(handle_, to, {.signature = call.signature, .data = values.data(), .where = call.where}).complete();
    }

    template <Element T>
    void receive(std::span<T> values, std::size_t from, Stream, const shardkit::Call& call) const {
        take(handle_, from, values.data(), call);
    }

    template <Element T>
    void send_receive(std::span<const T> sent, std::size_t to, std::span<T> received, std::size_t from, Stream,
                      const shardkit::Call& call) const {
        Post post(handle_, to, {.signature = call.signature, .data = sent.data(), .where = call.where});
        shardkit::Call receives = call;
        receives.signature.verb = Verb::receive;
        receives.signature.count = received.size();
        take(handle_, from, received.data(), receives);
        post.complete();
    }

  private:
    /// Everything that collectives have in common; `copy(round)` moves the data. Returns what it returns.
    template <class Copy>
    std::invoke_result_t<Copy, const Round&> collective(const shardkit::Call& call, const void* input,
                                                        std::size_t input_bytes, void* output, Copy copy) const {
        Round round(handle_, call, input, input_bytes, output);
        if (!round.agreed()) { round.leave_and_throw(); }
        if constexpr (std::is_void_v<std::invoke_result_t<Copy, const Round&>>) {
            copy(static_cast<const Round&>(round));
            round.leave();
        } else {
            const auto moved = copy(static_cast<const Round&>(round));
            round.leave();
            return moved;
        }
    }

    template <class T>
    static const T* input_of(const Round& round, std::size_t rank) noexcept {
        return static_cast<const T*>(round.input(rank));
    }

    /// Begins with the own rank's successor, so that the ranks do not all read the same peer at once.
    template <class Visit>
    void for_each_rank_from_next(Visit visit) const noexcept {
        const std::size_t ranks = size();
        for (std::size_t q = rank() + 1; q < ranks; ++q) { visit(q); }
        for (std::size_t q = 0; q <= rank(); ++q) { visit(q); }
    }

    template <class T>
    void gather(const T* shard, std::span<T> full, const shardkit::Call& call) const {
        const std::size_t k = full.size() / size();
        collective(call, shard, k * sizeof(T), nullptr, [&](const Round& round) {
            const bool in_place = shard == full.data() + rank() * k;
            const host::Store store = host::store_for(size() * (full.size_bytes() + (in_place ? 0 : k * sizeof(T))));
            for_each_rank_from_next([&](std::size_t q) {
                T* const place = full.data() + q * k;
                if (place != input_of<T>(round, q)) { host::copy_elements(input_of<T>(round, q), place, k, store); }
            });
            host::finish(store);
        });
    }

    template <class In, class Out>
    std::size_t scatter(ReduceOp op, std::span<const In> full, Out* shard, const shardkit::Call& call) const {
        return collective(call, full.data(), full.size_bytes(), nullptr, [&](const Round& round) {
            const std::size_t k = full.size() / size();
            const bool in_place = shard == static_cast<const void*>(full.data() + rank() * k);
            const host::Store store =
                in_place ? host::Store::cached : host::store_for(size() * (full.size_bytes() + k * sizeof(Out)));
            host::reduce_in_rank_order<In, Out>(
                op, size(), k, [&](std::size_t q) { return input_of<In>(round, q) + rank() * k; },
                host::Result<Out>{shard, store});
            host::finish(store);
            return (size() - 1) * k * sizeof(In);
        });
    }

    GroupHandle handle_;
};

}  // namespace shardkit::threads
