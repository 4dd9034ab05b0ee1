// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include <shardkit/core/bf16.hpp>
#include <shardkit/core/fp16.hpp>
#include <shardkit/verbs/split.hpp>

#include "verb_checks.hpp"

/// What every engine's verbs must do: functions that each rank of a communicator calls, the same for all engines.
/// They throw where something is wrong.
namespace verb_suite {

using namespace verb_checks;
using shardkit::bf16;
using shardkit::fp16;

inline std::vector<std::size_t> sizes() {
    if constexpr (rank_checks::sanitized) { return {0, 1, 2, 3, 17, 1000, 1027}; }
    return {0, 1, 2, 3, 17, 1000, 100003};
}

/// Small sizes are per rank; a large one is divided among the ranks.
inline std::size_t per_rank(std::size_t size, std::size_t ranks) { return size > 1000 ? size / ranks : size; }

/// Every verb, in and out of place, at every size and two alignments, bit for bit.
template <class T, class C>
void every_verb(const C& comm) {
    for (const std::size_t size : sizes()) {
        for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
            const std::size_t k = per_rank(size, comm.size());
            check_all_gather<T>(comm, k, offset);
            check_reduce_scatter<T, T>(comm, k, offset);
            check_all_reduce<T, T>(comm, size, offset);
            check_copies<T>(comm, k, offset);
            check_uneven<T>(comm, k, offset);
            check_send_and_receive<T>(comm, k);
        }
    }
}

template <class In, class Out, class C>
void reductions(const C& comm) {
    for (const std::size_t size : sizes()) {
        check_reduce_scatter<In, Out>(comm, per_rank(size, comm.size()), 1);
        check_all_reduce<In, Out>(comm, size, 1);
    }
}

template <class C>
void unsigned_words(const C& comm) {
    reductions<std::uint64_t, std::uint64_t>(comm);
    reductions<std::uint32_t, std::uint32_t>(comm);
}

template <class C>
void reductions_into_another_type(const C& comm) {
    reductions<bf16, float>(comm);
    reductions<fp16, float>(comm);
    reductions<bf16, double>(comm);
    reductions<float, double>(comm);
    reductions<double, float>(comm);
    reductions<float, bf16>(comm);
}

/// 256 + 1 is no bf16 value and rounds to 256; ones added in float first give a sum that is one.
template <class C>
void sixteen_bit_sums_are_rounded_once(const C& comm) {
    Values<bf16, C> mine(comm, 1, 0);
    Values<bf16, C> sum(comm, 1, 0);
    mine[0] = bf16(comm.rank() == 0 ? 256.0F : 1.0F);
    all_reduce(comm, ReduceOp::sum, mine.view(), sum.span(), Bench<C>::stream(comm));
    const bf16 expected(256.0F + static_cast<float>(comm.size() - 1));
    expect(same_bits(sum[0], expected), static_cast<float>(expected), ", got ", static_cast<float>(sum[0]));
}

template <class C>
void a_nan_survives_every_reduction(const C& comm) {
    for (std::size_t broken = 0; broken < comm.size(); ++broken) {
        for (const ReduceOp op : all_ops(comm)) {
            Values<float, C> mine(comm, 1, 0);
            mine[0] = comm.rank() == broken ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
            all_reduce_in_place(comm, op, mine.span(), Bench<C>::stream(comm));
            expect(mine[0] != mine[0], name(op), " keeps the NaN of rank ", broken);
        }
    }
}

/// @pre comm.size() > 1
template <class C>
void sizes_that_do_not_fit_are_refused(const C& comm) {
    const std::size_t n = comm.size();
    const auto stream = Bench<C>::stream(comm);
    Values<float, C> values(comm, n * 2 + 1, 0);
    const auto refuses = [&](auto call) {
        try {
            call();
        } catch (const std::invalid_argument&) { return true; }
        return false;
    };
    const std::span<const float> in = values.view();
    const std::span<float> out = values.span();
    expect(refuses([&] { all_gather(comm, in, out, stream); }), "all_gather refuses");
    expect(refuses([&] { all_gather_in_place(comm, out, stream); }), "all_gather_in_place refuses");
    expect(refuses([&] { reduce_scatter(comm, ReduceOp::sum, in, out, stream); }), "reduce_scatter refuses");
    expect(refuses([&] { reduce_scatter_in_place(comm, ReduceOp::sum, out, stream); }),
           "reduce_scatter_in_place refuses");
    expect(refuses([&] { all_reduce(comm, ReduceOp::sum, in, out.first(1), stream); }), "all_reduce refuses");
    if (!std::has_single_bit(comm.size())) {
        expect(refuses([&] { all_reduce_in_place(comm, ReduceOp::tree_sum, out, stream); }), "there is no tree");
        expect(refuses([&] { reduce_scatter_in_place(comm, ReduceOp::tree_sum, out.first(2 * n), stream); }),
               "there is no tree to scatter");
    }
    expect(refuses([&] { broadcast(comm, out, n, stream); }), "broadcast refuses");
    expect(refuses([&] { all_to_all(comm, in, out, stream); }), "all_to_all refuses");
    expect(refuses([&] { send(comm, in, n, stream); }), "send refuses");
    barrier(comm, stream);
}

/// Members are ordered by key, then by rank; `colouring` has two bits of color for each of at most 32 ranks.
template <class C>
void split_orders_members(const C& comm, std::uint64_t colouring) {
    const auto color_of = [&](std::size_t rank) { return (colouring >> (2 * rank)) & 3U; };
    const auto key_of = [](std::size_t rank) { return (rank * 3 + 1) % 2; };  // 1, 0, 1, 0
    const std::size_t self = comm.rank();
    std::size_t size = 0;
    std::size_t place = 0;
    for (std::size_t q = 0; q < comm.size(); ++q) {
        if (color_of(q) != color_of(self)) { continue; }
        ++size;
        if (key_of(q) < key_of(self) || (key_of(q) == key_of(self) && q < self)) { ++place; }
    }
    const C part = shardkit::split(comm, color_of(self), key_of(self), "part");
    expect(part.size() == size, "size ", size, ", got ", part.size());
    expect(part.rank() == place, "rank ", place, ", got ", part.rank());
    expect(part.axes() == "part", "the name is kept");
    Values<std::uint64_t, C> members(comm, size, 0);
    members[place] = self;
    all_gather_in_place(part, members.span(), Bench<C>::stream(comm));
    for (std::size_t q = 0; q < size; ++q) { expect(color_of(members[q]) == color_of(self), "one colour"); }
}

/// Communicators of several splits at once and one inside the other, drifting apart from each other.
template <class C>
void splits_run_at_once(const C& comm, std::size_t rounds) {
    const std::size_t n = comm.size();
    const std::size_t half = (n + 1) / 2;
    const C rows = shardkit::split(comm, comm.rank() / half, comm.rank() % half, "tp");
    const C columns = shardkit::split(comm, comm.rank() % half, comm.rank() / half, "dp");
    const C pairs = shardkit::split(rows, rows.rank() / 2, 0, "cp");
    const C reversed = shardkit::split(comm, 0, n - 1 - comm.rank(), "reversed");
    const C alone = shardkit::split(comm, comm.rank(), 0, "alone");
    expect(reversed.rank() == n - 1 - comm.rank() && alone.size() == 1, "shape of the splits");
    for (std::size_t round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i <= comm.rank() / half; ++i) { check_all_reduce<float, float>(rows, 300, 1); }
        for (std::size_t i = 0; i <= comm.rank() % half; ++i) { check_all_gather<float>(columns, 70, 1); }
        check_reduce_scatter<bf16, float>(pairs, 33, 1);
        check_copies<double>(reversed, 5, 1);
        check_all_reduce<double, double>(alone, 40, 1);
    }
    barrier(comm, Bench<C>::stream(comm));
}

}  // namespace verb_suite
