// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/core/error.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/layout/placed_parameter.hpp>
#include <shardkit/param/params.hpp>
#include <shardkit/plan/group_rows.hpp>

namespace shardkit::detail {

/// A group on one rank of a mesh: what describes it, its parameters, and where the rank stands. Free of types, so
/// that what works on it is compiled once for all groups.
struct GroupGeometry : GroupDescription {
    std::string path;  ///< what the description's own refers to is `description()`'s to say
    GroupRows table;
    std::optional<StochasticRounding> stochastic_rounding;  ///< its seed is this group's own
    std::vector<PlacedParameter> parameters;
    std::vector<std::size_t> by_name;        ///< their numbers, sorted by their names
    std::vector<std::string> owned_names;    ///< where `parameters` refers to names that no type holds
    std::span<const ParameterName> aliases;  ///< further names; a type's
    std::size_t shard_index = 0;
    std::size_t replica_index = 0;  ///< of this rank among those that hold the same shard
    std::size_t tp_index = 0;
    IndexRange own;      ///< this rank's shard within the full buffer
    IndexRange updated;  ///< what this rank's optimizer updates: `own`, or everything where it is replicated

    GroupGeometry() = default;
    GroupGeometry(GroupGeometry&&) noexcept = default;  // a copy would refer to the names of the first
    GroupGeometry& operator=(GroupGeometry&&) noexcept = default;

    /// What plans are made from. It refers to this group's path.
    GroupDescription description() const {
        GroupDescription group = *this;
        group.path = path;
        return group;
    }
    /// Whether an optimizer updates another copy than the one that is gathered.
    bool keeps_master() const noexcept { return table.find(Role::master) != nullptr; }
    /// The elements of the full buffer that this rank holds of a buffer.
    IndexRange range(Extent extent) const noexcept {
        return extent == Extent::shard ? own : IndexRange{0, buffer_numel};
    }
    /// 0 on exactly one of the ranks that hold the same elements of a parameter, in buffers placed as `placement`:
    /// where they are replicated, on one whose shard is `owner`.
    std::size_t replica(std::size_t parameter, Placement placement, std::size_t owner = 0) const noexcept {
        const std::size_t of_tp = parameters[parameter].split_over_tp() ? 0 : tp_index;
        const std::size_t of_shard = replica_index + replicas * of_tp;
        return placement == Placement::sharded ? of_shard
                                               : (shard_index + shards - owner) % shards + shards * of_shard;
    }
    /// Shard `index` of the full buffer.
    IndexRange shard(std::size_t index) const noexcept { return shard_range(index, shard_numel, buffer_numel); }

    /// The number of the parameter (or what the alias stands for) of that name. Cost: the logarithm of their number.
    /// @throws std::invalid_argument when there is none
    std::size_t number_of(std::string_view name, SourceLocation where) const {
        const auto at =
            std::lower_bound(by_name.begin(), by_name.end(), name,
                             [&](std::size_t p, std::string_view wanted) { return parameters[p].name < wanted; });
        if (at != by_name.end() && parameters[*at].name == name) { return *at; }
        for (const ParameterName& alias : aliases) {
            if (alias.name == name) { return alias.number; }
        }
        std::string known;
        for (const PlacedParameter& p : parameters) { known += concat(known.empty() ? "'" : ", '", p.name, "'"); }
        throw_invalid_argument(where, "'", path, "': no parameter is named '", name, "', expected one of ", known);
    }
    /// That number itself.
    /// @throws std::invalid_argument when there are fewer parameters
    template <std::integral Integer>
    std::size_t number_of(Integer number, SourceLocation where) const {
        if (std::cmp_greater_equal(number, 0) && std::cmp_less(number, parameters.size())) {
            return static_cast<std::size_t>(number);
        }
        throw_invalid_argument(where, "'", path, "': no parameter has the number ", number,
                               ", expected one from 0 to ", parameters.size() - 1);
    }
};

}  // namespace shardkit::detail
