// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <shardkit/policy/split_mesh.hpp>
#include <shardkit/rank/context.hpp>

namespace shardkit::detail {

/// The sub-meshes that a group of parameters lives on, as seen from one rank.
template <class Engine>
struct GroupCommunicators {
    typename Engine::Communicator shards;    ///< over the policy's shard axes
    typename Engine::Communicator replicas;  ///< over the remaining data axes
    typename Engine::Communicator data;      ///< over all data axes
    typename Engine::Communicator tp;

    const typename Engine::Communicator& operator[](Over over) const noexcept {
        switch (over) {
            case Over::shards:
                return shards;
            case Over::replicas:
                return replicas;
            case Over::data:
                return data;
            default:
                return tp;
        }
    }
};

/// The communicators of a group that `policy` shards. Collective over the mesh on first use.
/// @throws std::invalid_argument when the path is empty, or the policy's shard group does not divide dp
template <class Engine>
GroupCommunicators<Engine> make_communicators(Context<Engine>& context, std::string_view path,
                                              const PolicyValues& policy, SourceLocation where) {
    if (path.empty()) { throw_invalid_argument(where, "Sharded: the path is empty, expected a name as 'blocks.3'"); }
    const AxisGrid split = split_mesh(context.grid(), policy, path, where);
    const auto over = [&](Over ranks) { return context.communicator(split, axes_of(ranks, policy), where); };
    return {over(Over::shards), over(Over::replicas), over(Over::data), over(Over::tp)};
}

}  // namespace shardkit::detail
