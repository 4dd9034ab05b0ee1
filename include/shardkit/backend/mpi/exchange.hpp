// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <shardkit/backend/host/memory.hpp>
#include <shardkit/backend/host/reducer.hpp>
#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/collective.hpp>
#include <shardkit/backend/mpi/copies.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/reduce_op.hpp>

namespace shardkit::mpi::detail {

/// Sums by exchange. Every rank receives the addends of all ranks for its piece, in their own type, and adds them in
/// rank order in the arithmetic of the reduction. Deterministic: the same bits as the threads engine, with any MPI
/// implementation. 16-bit addends are sent as 16 bits.
/// Cost:    the minimum of bytes, (n - 1) / n of the buffer per rank and direction; n - 1 messages per block of
///          staging memory, so that the latency grows with the number of ranks.
struct Exchange {
    static constexpr engine::Traits traits{.gathered_all_reduce_addends = detail::carried_bytes,
                                           .gathers = engine::Crossing::to_hosts,
                                           .sums = engine::Crossing::to_hosts,
                                           .small_gather = detail::carried_bytes,
                                           .adds_along_trees = true};

    /// Reduces to each rank its piece. `shard` may be this rank's piece of `full`.
    static void reduce_scatter(const Messages& way, const host::Reducer& reducer, ReduceOp op, host::ConstMemory full,
                               host::Memory shard) {
        const auto piece = [k = shard.count](std::size_t rank) {
            return host::detail::Chunk{rank * k, (rank + 1) * k};
        };
        reduce_own_piece(way, reducer, op, full, piece, shard.at);
    }
    /// Returns what this rank receives in a reduce_scatter of `k` elements of `size` bytes a piece.
    static std::uint64_t moved_by_reduce_scatter(const Group& group, std::size_t k, std::size_t size) noexcept {
        return (group.size() - 1) * k * size;
    }

    /// Reduces to every rank. `output` may be `input`. Small inputs are gathered and added by every rank: one round
    /// of messages instead of two.
    static void all_reduce(const Messages& way, const host::Reducer& reducer, ReduceOp op, host::ConstMemory input,
                           host::Memory output) {
        if (gathers(input)) { return gather_and_reduce(way.call, reducer, op, input, output); }
        const Group& group = way.call.group;
        const auto piece = [&](std::size_t rank) { return piece_of(reducer, input.count, rank, group.size()); };
        reduce_own_piece(way, reducer, op, input, piece, output.part(piece(group.rank).begin, 0).at);
        detail::spread(way, output, piece);
    }
    /// Returns what this rank receives in an all_reduce.
    static std::uint64_t moved_by_all_reduce(const Group& group, const host::Reducer& reducer,
                                             host::ConstMemory input) {
        const std::size_t ranks = group.size();
        if (gathers(input)) { return (ranks - 1) * input.bytes(); }
        const std::size_t own = piece_of(reducer, input.count, group.rank, ranks).size();
        return (ranks - 1) * own * reducer.in_size + (input.count - own) * reducer.out_size;
    }

  private:
    /// Returns whether every rank receives all ranks' inputs.
    static constexpr bool gathers(host::ConstMemory input) noexcept { return input.bytes() <= detail::carried_bytes; }
    /// Returns the piece of `count` elements that a rank adds.
    static host::detail::Chunk piece_of(const host::Reducer& reducer, std::size_t count, std::size_t rank,
                                        std::size_t ranks) noexcept {
        return host::detail::chunk_of(count, std::min(reducer.in_size, reducer.out_size), rank, ranks);
    }

    static void gather_and_reduce(const Call& call, const host::Reducer& reducer, ReduceOp op,
                                  host::ConstMemory input, host::Memory output) {
        if (input.count == 0) { return; }
        const auto* const all = reinterpret_cast<const std::byte*>(call.lane.staging().data());
        const int size = static_cast<int>(input.count);
        call.lane.complete(call, "MPI_Iallgather", [&](MPI_Request* request) {
            return MPI_Iallgather(input.at, size, detail::word_type(input.size), call.lane.staging().data(), size,
                                  detail::word_type(input.size), call.channel.comm, request);
        });
        host::detail::reduce_in_rank_order(
            reducer, op, call.group.size(), input.count, [&](std::size_t rank) { return all + rank * input.bytes(); },
            host::detail::Result<std::byte>{output.at});
    }

    /// Reduces this rank's piece of all ranks' `full` into `result`. piece_of(q) is the range that rank q reduces.
    /// Messages go to and from ranks whose `full` this one cannot read. Blocks are received into one half of the
    /// staging memory while the other half is added.
    template <class PieceOf>
    static void reduce_own_piece(const Messages& way, const host::Reducer& reducer, ReduceOp op,
                                 host::ConstMemory full, PieceOf piece_of, std::byte* result) {
        const Call& call = way.call;
        const std::size_t ranks = call.group.size();
        const std::size_t self = call.group.rank;
        const std::size_t peers = ranks - 1;
        const auto staging = call.lane.staging();
        const std::size_t block = std::clamp<std::size_t>(staging.size() / full.size / (2 * ranks), 1,
                                                          call.world.options().message_elements);
        const auto staged = [&](std::size_t round, std::size_t rank) {
            return reinterpret_cast<std::byte*>(staging.data()) + (round % 2 * ranks + rank) * block * full.size;
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
                if (const std::size_t size = size_in(round, own); size > 0 && way.input(from) == nullptr) {
                    call.receive(staged(round, from), size, full.size, from, tag, slots[2 * step - 2]);
                }
                const host::detail::Chunk theirs = piece_of(to);
                if (const std::size_t size = size_in(round, theirs); size > 0 && way.input(to) == nullptr) {
                    call.send(full.part(theirs.begin + round * block, size).at, size, full.size, to, tag,
                              slots[2 * step - 1]);
                }
            }
        };
        if (rounds > 0) { post(0); }
        for (std::size_t round = 0; round < rounds; ++round) {
            if (round + 1 < rounds) { post(round + 1); }
            const auto slots = requests(round);
            call.lane.await(call, slots);
            const std::size_t at = round * block;
            host::detail::reduce_in_rank_order(
                reducer, op, ranks, size_in(round, own),
                [&](std::size_t rank) -> const std::byte* {
                    const std::byte* const theirs = rank == self ? full.at : way.input(rank);
                    return theirs != nullptr ? theirs + (own.begin + at) * full.size : staged(round, rank);
                },
                host::detail::Result<std::byte>{result + at * reducer.out_size});
        }
    }
};

}  // namespace shardkit::mpi::detail
