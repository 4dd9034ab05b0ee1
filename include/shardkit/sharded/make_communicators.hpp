// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <shardkit/mesh/context.hpp>
#include <shardkit/policy/policy_rules.hpp>
#include <shardkit/sharded/group_communicators.hpp>

namespace shardkit::detail {

/// The communicators of a group that `policy` shards. Collective over the mesh on first use.
/// @throws std::invalid_argument when the path is empty, or the policy's shard group does not divide dp
template <class Engine, class Policy>
GroupCommunicators<Engine> make_communicators(Context<Engine>& context, std::string_view path, const Policy& policy,
                                              SourceLocation where) {
    if (path.empty()) { throw_invalid_argument(where, "Sharded: the path is empty, expected a name as 'blocks.3'"); }
    const std::size_t dp = context.grid().extent(Dp::name);
    const std::size_t group = policy.shard_group(dp);
    if (group == 0 || dp % group != 0) {
        throw_invalid_argument(where, "'", path, "': policy ", policy.name, " with shard groups of ", group,
                               " does not divide dp = ", dp);
    }
    return {context.template communicator<ShardAxes<Policy>>(group, where),
            context.template communicator<ReplicaAxes<Policy>>(group, where),
            context.template communicator<DataAxes>(group, where), context.template sub_mesh<Axes<Tp>>(where)};
}

}  // namespace shardkit::detail
