// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>

#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/policy/policy_values.hpp>

namespace shardkit {

/// The number of slices into which the global batch is cut for a whole run: the leaves of the tree along which
/// TreeSums adds. A slice is what one rank computes in one microbatch, so that every pass has the same shapes, and
/// hence the same bits, on any number of ranks.
struct Slices {
    std::size_t count;

    /// @throws std::invalid_argument for a number that is no power of two
    constexpr explicit Slices(std::size_t number, SourceLocation where = SourceLocation::current()) : count(number) {
        require_argument(std::has_single_bit(number), where, "Slices: ", number, " given, expected a power of two");
    }
};

/// How slices are dealt to the data-parallel ranks, so that each partial sum is the sum of one subtree of the binary
/// tree over the slices' numbers.
/// @pre the three numbers are powers of two, `together` divides `ranks`, and `ranks` divides `slices`
struct SliceOrder {
    std::size_t slices = 1;    ///< S, leaves of the tree
    std::size_t ranks = 1;     ///< n, data-parallel ranks
    std::size_t together = 1;  ///< N, neighbouring ranks that are summed in every microbatch; 1 where none are

    /// Returns how many slices each rank takes in a step, one in each microbatch.
    constexpr std::size_t microbatches() const noexcept { return slices / ranks; }
    friend constexpr bool operator==(const SliceOrder&, const SliceOrder&) noexcept = default;
};

/// Returns the number of the slice that `rank` takes at `microbatch`: group * (N * M) + microbatch * N + place for
/// its place in its group of N ranks and M microbatches. Where every microbatch is reduced over all ranks, this is
/// microbatch * n + rank; where none is, rank * M + microbatch.
/// @pre  rank < order.ranks and microbatch < order.microbatches()
/// @post takes each number from 0 to order.slices - 1 exactly once
constexpr std::size_t slice_of(const SliceOrder& order, std::size_t rank, std::size_t microbatch) noexcept {
    const std::size_t group = rank / order.together;
    const std::size_t place = rank % order.together;
    return group * order.together * order.microbatches() + microbatch * order.together + place;
}

/// Returns the order in which ranks with this policy take slices on `dp` data-parallel ranks.
/// @pre the policy has slices, and `dp` divides them
constexpr SliceOrder slice_order(const rules::PolicyValues& policy, std::size_t dp) noexcept {
    const bool each = policy.accumulate == Accumulate::reduced && policy.slices > dp;
    const bool all = policy.across_groups.reduced == Placement::sharded;
    return {policy.slices, dp, !each ? 1 : all ? dp : policy.shard_group};
}

/// Returns how many buffers of sums a rank holds while it adds `microbatches` slices along the tree: one for each
/// binary digit of the number that was added, and one for the slice under way.
constexpr std::size_t slice_sums(std::size_t microbatches) noexcept {
    return static_cast<std::size_t>(std::bit_width(microbatches));
}

namespace detail {

/// How the sum of a microbatch joins the stack of sums, as a digit joins a binary counter.
struct SliceCarry {
    std::size_t depth = 0;   ///< number of sums on the stack before
    std::size_t merges = 0;  ///< number of these, from the top, to which it is added; 0: it is put on the stack
};
constexpr SliceCarry slice_carry(std::size_t microbatch) noexcept {
    return {static_cast<std::size_t>(std::popcount(microbatch)),
            static_cast<std::size_t>(std::countr_one(microbatch))};
}

}  // namespace detail

}  // namespace shardkit
