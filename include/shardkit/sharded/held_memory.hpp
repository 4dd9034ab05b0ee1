// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <shardkit/detail/list.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/memory/stored_elements.hpp>
#include <shardkit/policy/placement_table.hpp>
#include <shardkit/sharded/group_geometry.hpp>

namespace shardkit::detail {

/// The shape of a state that is not its parameter's: rows of `of_each` numbers. One rank has them, as the owner of a
/// matrix does, or every rank has all.
struct OwnShape {
    std::size_t parameter = 0;
    std::size_t rows = 0;
    std::size_t of_each = 0;
    std::size_t tp = 0;       ///< whose part of the parameter they are of
    std::size_t parts = 1;    ///< of how many
    bool everywhere = false;  ///< whether every rank has them, of all experts too
    bool owned = false;       ///< whether this rank has them
};

/// Memory that a rank holds of a group: an item of Group::held(), or of what an optimizer holds of the group. Whoever
/// reads or writes what a group holds goes through these lists: checkpoints and reshards, comparisons and hashes,
/// ShardInfos, plans.
struct HeldMemory {
    /// What other ranks update of it.
    enum class Copies : std::uint8_t {
        none,
        current,
        stale  ///< until the next gather, but for the elements that this rank updates
    };

    Role role{};
    std::string_view state{};  ///< the name of an optimizer's state; empty for other roles
    StoredElements values{};   ///< in the engine's memory; masters and states of an offloaded group in the host's
    IndexRange flat{};         ///< the elements of the group's flat order that they are of
    Extent extent{};           ///< which ranks hold the same elements: with `shard`, those of the same shard
    Copies copies = Copies::none;
    std::size_t unit = 1;  ///< elements of the flat order for each value: of scales, a block's
    bool square = false;   ///< whether a state's numbers are squares, which blocks of 8 bits store in other codes
    List<char> of{};       ///< whether there are values of each parameter; empty: of all
    OwnShape shape{};      ///< of a state that has one; else without rows

    /// Returns the part of it that is current.
    HeldMemory current(const GroupGeometry& group) const {
        HeldMemory part = *this;
        if (copies != Copies::stale) { return part; }
        part.values = values.subspan(group.updated.begin - flat.begin, group.updated.size());
        part.flat = group.updated;
        part.extent = group.table.updated;
        return part;
    }
    /// Returns what the values are called in errors and in lists.
    std::string_view name() const noexcept {
        switch (role) {
            case Role::parameters:
                return "parameter";
            case Role::gathered:
                return "full copy";
            case Role::secondary:
                return "secondary shard";
            case Role::master:
                return "master";
            case Role::states:
                return state;
            case Role::gradients:
            case Role::reduced:
            case Role::addend:
            case Role::subtotals:
                break;
        }
        return "reduced gradient";
    }
    /// Returns what is behind the name of values that are a state's scales.
    std::string_view ending() const noexcept { return unit > 1 ? " scales" : ""; }
};

}  // namespace shardkit::detail
