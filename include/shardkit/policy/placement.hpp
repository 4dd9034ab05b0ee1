// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>

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

}  // namespace shardkit

namespace shardkit::rules {

/// The operation that turns one placement into another.
enum class Transition : std::uint8_t { none, slice, all_gather, reduce_scatter, all_reduce };

}  // namespace shardkit::rules

namespace shardkit {

/// Returns the placement's name in errors and tables.
constexpr std::string_view name(Placement placement) noexcept {
    constexpr std::string_view names[] = {"replicated", "sharded", "partial"};
    return names[static_cast<std::size_t>(placement)];
}

}  // namespace shardkit

namespace shardkit::rules {

/// Returns the operation that turns one placement into another. Every policy's communication follows from this table.
/// @post slice and none need no communication
/// @throws std::invalid_argument for a change to partial, which does not exist
constexpr Transition transition(Placement from, Placement to, SourceLocation where = SourceLocation::current()) {
    if (from == to) { return Transition::none; }
    if (to == Placement::partial) { throw_invalid_argument(where, "placement: a value cannot become partial"); }
    if (from == Placement::partial) {
        return to == Placement::sharded ? Transition::reduce_scatter : Transition::all_reduce;
    }
    return from == Placement::sharded ? Transition::all_gather : Transition::slice;
}

}  // namespace shardkit::rules
