// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <shardkit/machine/group_description.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/spi/placement.hpp>

namespace shardkit::detail {

/// Gives an empty geometry that of the group that Sharded<ParamOrGroup, Policy, ..., Precision> with these options
/// would make, as the first rank of a mesh has it. It refers to itself: it stays where it is.
/// @throws std::invalid_argument as describe_group
template <class ParamOrGroup, ShardPolicy Policy, class Precision>
void plan_geometry(GroupGeometry& group, std::string_view path, const TensorsOf<ParamOrGroup>& tensors,
                   const ShardedOptions<GroupOf<ParamOrGroup>, Policy>& options, const AxisGrid& mesh,
                   SourceLocation where) {
    tensors.check(path, where);
    const auto chosen = chosen_parameters<GroupOf<ParamOrGroup>, Policy>(path, tensors, options, where);
    group.parameters.append(chosen.data(), chosen.data() + chosen.size());
    for (const PlacedParameter& p : group.parameters) { group.owned_names.emplace_back(p.name); }
    for (std::size_t p = 0; p < group.parameters.size(); ++p) { group.parameters[p].name = group.owned_names[p]; }
    group.path = path;
    static_cast<GroupDescription&>(group) = describe_first<Precision>(
        group.path, {group.parameters.data(), group.parameters.size()}, mesh, options, where);
    group.table = GroupRows(group);
}

}  // namespace shardkit::detail
