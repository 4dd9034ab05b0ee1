// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/host/rank_order_reduction.hpp>
#include <shardkit/backend/mpi/across.hpp>
#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/collective.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/comm/cost.hpp>
#include <shardkit/comm/moved.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::mpi {

/// Sums by exchange. Every rank receives the addends of all ranks for its piece, in their own type, and adds them in
/// rank order in the arithmetic of the reduction. Deterministic: the same bits as the threads engine, with any MPI
/// implementation. 16-bit addends are sent as 16 bits.
/// Cost:    the minimum of bytes, (n - 1) / n of the buffer per rank and direction; n - 1 messages per block of
///          staging memory, so that the latency grows with the number of ranks.
struct Exchange {
    static constexpr std::string_view name = "exchange";
    static constexpr engine::Traits traits{.gathered_all_reduce_addends = detail::carried_bytes,
                                           .gathers = engine::Crossing::to_hosts,
                                           .sums = engine::Crossing::to_hosts,
                                           .small_gather = detail::carried_bytes,
                                           .adds_along_trees = true};

    /// Ranks of one host read each other's memory, and add to the same bits.
    static constexpr bool reads_peers = true;

    /// Reduces to each rank its piece. `shard` may be this rank's piece of `full`.
    template <class In, class Out>
    static void reduce_scatter(const detail::Call& call, ReduceOp op, const In* full, std::size_t k, Out* shard) {
        const auto piece = [&](std::size_t rank) { return host::detail::Chunk{rank * k, (rank + 1) * k}; };
        const auto nobody = [](std::size_t) { return static_cast<const In*>(nullptr); };
        reduce_own_piece<In, Out>(call, op, full, piece, nobody, shard);
    }
    /// Reduces likewise, where the ranks of each host read each other's memory.
    template <class In, class Out>
    static void reduce_scatter(const detail::Across& way, ReduceOp op, const In* full, std::size_t k, Out* shard) {
        const auto piece = [&](std::size_t rank) { return host::detail::Chunk{rank * k, (rank + 1) * k}; };
        const auto seen = [&](std::size_t rank) { return way.input<In>(rank); };
        reduce_own_piece<In, Out>(way.call, op, full, piece, seen, shard);
    }
    /// Returns what this rank receives in a reduce_scatter.
    template <class In, class Out>
    static engine::Moved moved_by_reduce_scatter(const detail::Group& group, ReduceOp, std::size_t k) noexcept {
        return {(group.size() - 1) * k * sizeof(In), group.strangers() * k * sizeof(In)};
    }

    /// Reduces to every rank. `output` may be `input`. Small inputs are gathered and added by every rank: one round
    /// of messages instead of two.
    template <class In, class Out>
    static void all_reduce(const detail::Call& call, ReduceOp op, const In* input, std::size_t count, Out* output) {
        const std::size_t ranks = call.group.size();
        if (gathers<In>(count)) {
            gather_and_reduce<In, Out>(call, op, input, count, output);
            return;
        }
        detail::for_each_piece(call, count, [&](std::size_t at, int size) {
            const auto part = static_cast<std::size_t>(size);
            const auto piece = [&](std::size_t rank) { return piece_of<In, Out>(part, rank, ranks); };
            const host::detail::Chunk own = piece(call.group.rank);
            const auto nobody = [](std::size_t) { return static_cast<const In*>(nullptr); };
            reduce_own_piece<In, Out>(call, op, input + at, piece, nobody, output + at + own.begin);
            int* const sizes = call.lane.counts().data();
            int* const begins = sizes + ranks;
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                sizes[rank] = static_cast<int>(piece(rank).size());
                begins[rank] = static_cast<int>(piece(rank).begin);
            }
            call.lane.complete(call, "MPI_Iallgatherv", [&](MPI_Request* request) {
                return MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, output + at, sizes, begins,
                                       detail::datatype<Out>(), call.channel.comm, request);
            });
        });
    }
    /// Reduces inputs larger than `carried_bytes`, where the ranks of each host read each other's memory.
    template <class In, class Out>
    static void all_reduce(const detail::Across& way, ReduceOp op, const In* input, std::size_t count, Out* output) {
        const std::size_t ranks = way.call.group.size();
        const auto piece = [&](std::size_t rank) { return piece_of<In, Out>(count, rank, ranks); };
        const auto seen = [&](std::size_t rank) { return way.input<In>(rank); };
        reduce_own_piece<In, Out>(way.call, op, input, piece, seen, output + piece(way.call.group.rank).begin);
        detail::spread(way, output, piece);
    }
    /// Returns what this rank receives in an all_reduce.
    template <class In, class Out>
    static engine::Moved moved_by_all_reduce(const World& world, const detail::Group& group, detail::Way way,
                                             ReduceOp, std::size_t count) {
        const std::size_t ranks = group.size();
        if (gathers<In>(count)) { return {(ranks - 1) * count * sizeof(In), group.strangers() * count * sizeof(In)}; }
        engine::Moved received;
        const std::size_t most = way == detail::Way::messages ? world.options().message_elements : count;
        for (std::size_t at = 0; at < count; at += most) {
            const std::size_t part = std::min(most, count - at);
            const std::size_t own = piece_of<In, Out>(part, group.rank, ranks).size();
            received.bytes += (ranks - 1) * own * sizeof(In) + (part - own) * sizeof(Out);
            if (!group.spans_hosts()) { continue; }
            received.between_hosts += group.strangers() * own * sizeof(In);
            for (std::size_t q = 0; q < ranks; ++q) {
                if (way == detail::Way::across ? group.takes_from(q) : !group.is_here(q)) {
                    received.between_hosts += piece_of<In, Out>(part, q, ranks).size() * sizeof(Out);
                }
            }
        }
        return received;
    }

  private:
    /// Returns whether every rank receives all ranks' inputs.
    template <class In>
    static constexpr bool gathers(std::size_t count) noexcept {
        return count * sizeof(In) <= detail::carried_bytes;
    }
    /// Returns the piece of `count` elements that a rank adds.
    template <class In, class Out>
    static host::detail::Chunk piece_of(std::size_t count, std::size_t rank, std::size_t ranks) noexcept {
        return host::detail::chunk_of(count, std::min(sizeof(In), sizeof(Out)), rank, ranks);
    }

    template <class In, class Out>
    static void gather_and_reduce(const detail::Call& call, ReduceOp op, const In* input, std::size_t count,
                                  Out* output) {
        if (count == 0) { return; }
        const std::size_t ranks = call.group.size();
        In* const all = reinterpret_cast<In*>(call.lane.staging().data());
        const int size = static_cast<int>(count);
        call.lane.complete(call, "MPI_Iallgather", [&](MPI_Request* request) {
            return MPI_Iallgather(input, size, detail::datatype<In>(), all, size, detail::datatype<In>(),
                                  call.channel.comm, request);
        });
        host::detail::reduce_in_rank_order<In, Out>(
            op, ranks, count, [&](std::size_t rank) { return all + rank * count; },
            host::detail::Result<Out>{output});
    }

    /// Reduces this rank's piece of all ranks' `full` into `result`. piece_of(q) is the range that rank q reduces.
    /// seen(q) is rank q's `full` if this rank can read it, else null: then messages go to and from q. Blocks are
    /// received into one half of the staging memory while the other half is added.
    template <class In, class Out, class PieceOf, class Seen>
    static void reduce_own_piece(const detail::Call& call, ReduceOp op, const In* full, PieceOf piece_of, Seen seen,
                                 Out* result) {
        const std::size_t ranks = call.group.size();
        const std::size_t self = call.group.rank;
        const std::size_t peers = ranks - 1;
        const auto staging = call.lane.staging();
        const std::size_t block = std::clamp<std::size_t>(staging.size() / sizeof(In) / (2 * ranks), 1,
                                                          call.world.options().message_elements);
        const auto staged = [&](std::size_t round, std::size_t rank) {
            return reinterpret_cast<In*>(staging.data()) + (round % 2 * ranks + rank) * block;
        };
        const auto size_in = [&](std::size_t round, const host::detail::Chunk& piece) {
            return std::min(block, piece.size() - std::min(piece.size(), round * block));
        };
        const auto requests = [&](std::size_t round) {
            return call.lane.requests().subspan(round % 2 * 2 * peers, 2 * peers);
        };
        const host::detail::Chunk own = piece_of(self);
        std::size_t longest = 0;
        for (std::size_t rank = 0; rank < ranks; ++rank) { longest = std::max(longest, piece_of(rank).size()); }
        const std::size_t rounds = longest / block + (longest % block != 0 ? 1 : 0);

        constexpr int tag = 0;
        const auto post = [&](std::size_t round) {
            const auto slots = requests(round);
            std::fill(slots.begin(), slots.end(), MPI_REQUEST_NULL);
            for (std::size_t step = 1; step < ranks; ++step) {
                const std::size_t from = (self + ranks - step) % ranks;
                const std::size_t to = (self + step) % ranks;
                if (const std::size_t size = size_in(round, own); size > 0 && seen(from) == nullptr) {
                    call.mpi().check(MPI_Irecv(staged(round, from), static_cast<int>(size), detail::datatype<In>(),
                                               static_cast<int>(from), tag, call.channel.comm, &slots[2 * step - 2]),
                                     "MPI_Irecv");
                }
                const host::detail::Chunk theirs = piece_of(to);
                if (const std::size_t size = size_in(round, theirs); size > 0 && seen(to) == nullptr) {
                    call.mpi().check(
                        MPI_Isend(full + theirs.begin + round * block, static_cast<int>(size), detail::datatype<In>(),
                                  static_cast<int>(to), tag, call.channel.comm, &slots[2 * step - 1]),
                        "MPI_Isend");
                }
            }
        };
        if (rounds > 0) { post(0); }
        for (std::size_t round = 0; round < rounds; ++round) {
            if (round + 1 < rounds) { post(round + 1); }
            const auto slots = requests(round);
            call.lane.await(call, slots);
            const std::size_t at = round * block;
            host::detail::reduce_in_rank_order<In, Out>(
                op, ranks, size_in(round, own),
                [&](std::size_t rank) {
                    const In* const theirs = rank == self ? full : seen(rank);
                    return theirs != nullptr ? theirs + own.begin + at : staged(round, rank);
                },
                host::detail::Result<Out>{result + at});
        }
    }
};

}  // namespace shardkit::mpi
