// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <shardkit/policy/policy_rules.hpp>
#include <shardkit/rank/context.hpp>

namespace shardkit {

/// The sub-meshes that a group of parameters lives on, as seen from one rank.
template <class Engine>
struct GroupCommunicators {
    typename Engine::Communicator shards;    ///< over the policy's shard axes
    typename Engine::Communicator replicas;  ///< over the remaining data axes
    typename Engine::Communicator data;      ///< over all data axes
    typename Engine::Communicator tp;
};

}  // namespace shardkit

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
