// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <shardkit/backend/host/chunk.hpp>
#include <shardkit/backend/host/rank_order_reduction.hpp>
#include <shardkit/backend/host/stream_elements.hpp>
#include <shardkit/backend/threads/call.hpp>
#include <shardkit/backend/threads/post.hpp>
#include <shardkit/backend/threads/round.hpp>
#include <shardkit/backend/threads/split.hpp>
#include <shardkit/backend/threads/take.hpp>
#include <shardkit/backend/threads/world.hpp>
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
        : world_(&world), group_(&group), rank_(rank) {
        relabel(axes);
    }

    std::size_t rank() const noexcept { return rank_; }
    std::size_t size() const noexcept { return group_->size(); }
    std::string_view axes() const noexcept { return *axes_; }
    /// What this rank has communicated, over all its communicators.
    TrafficLog& traffic() const noexcept { return state().traffic; }

    Communicator named(std::string_view axes) const {
        Communicator other = *this;
        other.relabel(axes);
        return other;
    }

    Communicator split(std::size_t color, std::size_t key, std::string_view axes,
                       SourceLocation where = SourceLocation::current()) const {
        const SplitResult result = split_group(end(), color, key, where);
        record(Verb::split, result.payload, result.moved);
        return Communicator(*world_, *result.group, result.rank, axes);
    }

    void barrier(Stream, SourceLocation where = SourceLocation::current()) const {
        collective({.verb = Verb::barrier}, nullptr, 0, nullptr, 0, where,
                   [](const Round&) { return std::size_t{0}; });
    }

    template <Element T>
    void all_gather(std::span<const T> shard, std::span<T> full, Stream, SourceLocation where) const {
        gather(shard.data(), shard.size(), full, where);
    }

    template <Element T>
    void all_gather_in_place(std::span<T> full, Stream, SourceLocation where) const {
        const std::size_t k = full.size() / size();
        gather(static_cast<const T*>(full.data() + rank_ * k), k, full, where);
    }

    template <Element In, Element Out>
    void reduce_scatter(ReduceOp op, std::span<const In> full, std::span<Out> shard, Stream,
                        SourceLocation where) const {
        scatter(op, full, shard.data(), where);
    }

    template <Element T>
    void reduce_scatter_in_place(ReduceOp op, std::span<T> full, Stream, SourceLocation where) const {
        scatter(op, std::span<const T>(full), full.data() + rank_ * (full.size() / size()), where);
    }

    /// Each rank reduces one chunk and writes it to all ranks, so what a rank moves depends on its chunk's size; the
    /// chunks are equal when the count divides by the ranks and 128 bytes. Up to `carried_bytes` every rank reduces
    /// everything.
    template <Element In, Element Out>
    void all_reduce(ReduceOp op, std::span<const In> input, std::span<Out> output, Stream,
                    SourceLocation where) const {
        const Signature signature{Verb::all_reduce, element_type_of<In>, element_type_of<Out>, op, input.size(), 0};
        const std::size_t payload = input.size_bytes();
        collective(signature, input.data(), payload, output.data(), payload, where, [&](const Round& round) {
            if (round.carried()) {
                host::reduce_in_rank_order<In, Out>(
                    op, size(), input.size(), [&](std::size_t q) { return input_of<In>(round, q); },
                    host::Result<Out>{output.data()});
                return (size() - 1) * payload;
            }
            const host::Store store = host::store_for(size() * (input.size_bytes() + output.size_bytes()));
            const host::Chunk own = host::chunk_of(input.size(), std::min(sizeof(In), sizeof(Out)), rank_, size());
            host::reduce_in_rank_order<In, Out>(
                op, size(), own.size(), [&](std::size_t q) { return input_of<In>(round, q) + own.begin; }, size(),
                [&](std::size_t q) {
                    const Call& call = round.call(q);
                    // A result that replaces its input is in the caches already.
                    return host::Result<Out>{static_cast<Out*>(call.output) + own.begin,
                                             call.output == call.input ? host::Store::cached : store};
                });
            host::finish(store);
            return (size() - 1) * own.size() * (sizeof(In) + sizeof(Out));
        });
    }

    template <Element T>
    void all_reduce_in_place(ReduceOp op, std::span<T> values, Stream stream, SourceLocation where) const {
        all_reduce(op, std::span<const T>(values), values, stream, where);
    }

    template <Element T>
    void broadcast(std::span<T> values, std::size_t root, Stream, SourceLocation where) const {
        const Signature signature{Verb::broadcast, element_type_of<T>, element_type_of<T>,
                                  ReduceOp::sum,   values.size(),      root};
        const std::size_t payload = values.size_bytes();
        collective(signature, values.data(), payload, nullptr, payload, where, [&](const Round& round) {
            if (rank_ == root) { return std::size_t{0}; }
            const host::Store store = host::store_for(size() * values.size_bytes());
            host::copy_elements(input_of<T>(round, root), values.data(), values.size(), store);
            host::finish(store);
            return values.size_bytes();
        });
    }

    template <Element T>
    void all_to_all(std::span<const T> sent, std::span<T> received, Stream, SourceLocation where) const {
        const Signature signature{Verb::all_to_all, element_type_of<T>, element_type_of<T>,
                                  ReduceOp::sum,    sent.size(),        0};
        const std::size_t payload = sent.size_bytes();
        collective(signature, sent.data(), payload, nullptr, payload, where, [&](const Round& round) {
            const std::size_t k = sent.size() / size();
            const host::Store store = host::store_for(2 * size() * sent.size_bytes());
            for_each_rank_from_next([&](std::size_t q) {
                host::copy_elements(input_of<T>(round, q) + rank_ * k, received.data() + q * k, k, store);
            });
            host::finish(store);
            return (size() - 1) * k * sizeof(T);
        });
    }

    template <Element T>
    void send(std::span<const T> values, std::size_t to, Stream, SourceLocation where) const {
        Post post(end(), to, message(values), where);
        post.complete();
        record(Verb::send, values.size_bytes(), moved_to(to, values.size_bytes()));
    }

    template <Element T>
    void receive(std::span<T> values, std::size_t from, Stream, SourceLocation where) const {
        take(end(), from, {Verb::receive, element_type_of<T>, element_type_of<T>, ReduceOp::sum, values.size(), 0},
             values.data(), where);
        record(Verb::receive, values.size_bytes(), moved_to(from, values.size_bytes()));
    }

    template <Element T>
    void send_receive(std::span<const T> sent, std::size_t to, std::span<T> received, std::size_t from, Stream stream,
                      SourceLocation where) const {
        Post post(end(), to, message(sent), where);
        receive(received, from, stream, where);
        post.complete();
        record(Verb::send, sent.size_bytes(), moved_to(to, sent.size_bytes()));
    }

  private:
    RankState& state() const noexcept { return world_->state(group_->world_ranks()[rank_]); }

    void relabel(std::string_view axes) {
        axes_ = &state().label(axes);
        first_row_ = state().traffic.add_communicator(axes);
    }

    void record(Verb verb, std::size_t payload, std::size_t moved) const noexcept {
        if (size() > 1) { state().traffic.record(first_row_, verb, ByteCount(payload), ByteCount(moved)); }
    }

    /// Everything that collectives have in common; `copy(round)` moves the data and returns the bytes that went
    /// between this rank and its peers.
    template <class Copy>
    void collective(const Signature& signature, const void* input, std::size_t input_bytes, void* output,
                    std::size_t payload, SourceLocation where, Copy copy) const {
        Round round(end(), {signature, input, input_bytes, output, where});
        if (!round.agreed()) { round.leave_and_throw(); }
        const std::size_t moved = copy(static_cast<const Round&>(round));
        round.leave();
        record(signature.verb, payload, moved);
    }

    template <class T>
    static const T* input_of(const Round& round, std::size_t rank) noexcept {
        return static_cast<const T*>(round.input(rank));
    }

    /// Begins with the own rank's successor, so that the ranks do not all read the same peer at once.
    template <class Visit>
    void for_each_rank_from_next(Visit visit) const noexcept {
        for (std::size_t q = rank_ + 1; q < size(); ++q) { visit(q); }
        for (std::size_t q = 0; q <= rank_; ++q) { visit(q); }
    }

    template <class T>
    void gather(const T* shard, std::size_t k, std::span<T> full, SourceLocation where) const {
        const Signature signature{Verb::all_gather, element_type_of<T>, element_type_of<T>, ReduceOp::sum, k, 0};
        collective(signature, shard, k * sizeof(T), nullptr, full.size_bytes(), where, [&](const Round& round) {
            const bool in_place = shard == full.data() + rank_ * k;
            const host::Store store = host::store_for(size() * (full.size_bytes() + (in_place ? 0 : k * sizeof(T))));
            for_each_rank_from_next([&](std::size_t q) {
                T* const place = full.data() + q * k;
                if (place != input_of<T>(round, q)) { host::copy_elements(input_of<T>(round, q), place, k, store); }
            });
            host::finish(store);
            return (size() - 1) * k * sizeof(T);
        });
    }

    template <class In, class Out>
    void scatter(ReduceOp op, std::span<const In> full, Out* shard, SourceLocation where) const {
        const Signature signature{
            Verb::reduce_scatter, element_type_of<In>, element_type_of<Out>, op, full.size(), 0};
        const std::size_t payload = full.size_bytes();
        collective(signature, full.data(), payload, nullptr, payload, where, [&](const Round& round) {
            const std::size_t k = full.size() / size();
            const bool in_place = shard == static_cast<const void*>(full.data() + rank_ * k);
            const host::Store store =
                in_place ? host::Store::cached : host::store_for(size() * (full.size_bytes() + k * sizeof(Out)));
            host::reduce_in_rank_order<In, Out>(
                op, size(), k, [&](std::size_t q) { return input_of<In>(round, q) + rank_ * k; },
                host::Result<Out>{shard, store});
            host::finish(store);
            return (size() - 1) * k * sizeof(In);
        });
    }

    GroupEnd end() const noexcept { return {*world_, *group_, rank_, *axes_}; }

    template <class T>
    static Message message(std::span<const T> values) noexcept {
        return {.signature = {Verb::send, element_type_of<T>, element_type_of<T>, ReduceOp::sum, values.size(), 0},
                .data = values.data()};
    }

    std::size_t moved_to(std::size_t peer, std::size_t bytes) const noexcept { return peer == rank_ ? 0 : bytes; }

    World* world_;
    Group* group_;
    std::size_t rank_;
    const std::string* axes_ = nullptr;
    std::size_t first_row_ = 0;
};

}  // namespace shardkit::threads
