// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/mesh/axes.hpp>

namespace shardkit {

/// How a value lies over a set of ranks: whole on each, a piece on each, or as addends of a sum.
enum class Placement : std::uint8_t { replicated, sharded, partial };

/// How a group's values lie along one axis of its mesh, or along several that count as one. A policy has such a row
/// for the ranks of a shard group and one for the ranks across shard groups.
struct AxisPlacements {
    Placement parameters = Placement::replicated;  ///< at rest
    /// Sums of gradients. Sharded: in every microbatch. Else when all microbatches are added: partial becomes what
    /// the states are, replicated is a sum on every rank.
    Placement reduced = Placement::partial;
    Placement states = Placement::replicated;  ///< of the optimizer, and master weights

    /// Returns where the sums of all microbatches lie.
    constexpr Placement summed() const noexcept { return reduced == Placement::partial ? states : reduced; }
    friend constexpr bool operator==(const AxisPlacements&, const AxisPlacements&) noexcept = default;
};

/// Returns the placement's name in errors and tables.
constexpr std::string_view name(Placement placement) noexcept {
    constexpr std::string_view names[] = {"replicated", "sharded", "partial"};
    return names[static_cast<std::size_t>(placement)];
}

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

/// The operation that turns one placement into another.
enum class Transition : std::uint8_t { none, slice, all_gather, reduce_scatter, all_reduce };

/// Returns the operation that turns one placement into another. Every policy's communication follows from this table.
/// @post slice and none need no communication
/// @throws std::invalid_argument for a change to partial, which does not exist
constexpr Transition transition(Placement from, Placement to, SourceLocation where = SourceLocation::current()) {
    if (from == to) { return Transition::none; }
    require_argument(to != Placement::partial, where, "placement: a value cannot become partial");
    if (from == Placement::partial) {
        return to == Placement::sharded ? Transition::reduce_scatter : Transition::all_reduce;
    }
    return from == Placement::sharded ? Transition::all_gather : Transition::slice;
}

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
