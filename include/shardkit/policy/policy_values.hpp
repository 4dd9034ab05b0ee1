// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/policy/placement.hpp>

namespace shardkit {

/// Where the gradients of several microbatches are accumulated.
enum class Accumulate : std::uint8_t {
    unreduced,  ///< full gradients are added up, with one reduction at the last microbatch
    reduced     ///< every microbatch is reduced into the shard: M reductions, no full-size gradient at rest
};

/// When the full copy of parameters that are sharded at rest is released.
enum class Release : std::uint8_t { never, at_update, at_reshard };

/// What a rank keeps between windows of parameters that are sharded across shard groups too.
enum class Keep : std::uint8_t {
    none,
    /// What its group holds of them, in the gathered type: the first window after an update, or after another write,
    /// fetches it from the other groups, and later windows gather within the group alone.
    secondary
};

/// In which order gradients are added over ranks. It is the same on every rank and in every run on the engines of the
/// host; `tree` also on other engines, and on any number of ranks: see ReduceOp::tree_sum.
enum class Summation : std::uint8_t { rank_order, tree };

namespace detail {
constexpr ReduceOp op_of(Summation summation) noexcept {
    return summation == Summation::tree ? ReduceOp::tree_sum : ReduceOp::sum;
}
}  // namespace detail

}  // namespace shardkit

namespace shardkit::rules {

/// A policy as values on a mesh, which the rules check and the placement table is made from. The default replicates
/// everything.
struct PolicyValues {
    std::string_view name;  ///< must outlive the values
    Placement parameters = Placement::replicated;
    Placement gradients = Placement::replicated;
    Placement optimizer = Placement::replicated;
    Accumulate accumulate = Accumulate::unreduced;
    Release release = Release::never;
    std::size_t shard_group = 1;  ///< number of data-parallel ranks that share one copy
    AxisNames shard_axes = Axes<DpShard>{};
    Summation summation = Summation::rank_order;
    std::size_t slices = 0;  ///< parts of the global batch, of which each is one leaf of the tree; 0: not cut
    AxisPlacements across_groups{};
    Keep keep = Keep::none;

    /// Returns the row of the shard axes, which the other members state.
    constexpr AxisPlacements within_groups() const noexcept {
        const bool each = accumulate == Accumulate::reduced;
        return {parameters, each || gradients != optimizer ? gradients : Placement::partial, optimizer};
    }
    friend constexpr bool operator==(const PolicyValues&, const PolicyValues&) noexcept = default;
};

}  // namespace shardkit::rules
