// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/comm/agreement.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/policy/split_mesh.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/rank/gather_values.hpp>
#include <shardkit/sharded/group_geometry.hpp>

namespace shardkit::detail {

/// The communicators of a group of parameters, as seen from one rank.
template <class Engine>
struct GroupCommunicators {
    typename Engine::Communicator shards;    ///< over the policy's shard axes
    typename Engine::Communicator replicas;  ///< over the remaining data axes
    typename Engine::Communicator data;      ///< over all data axes
    typename Engine::Communicator tp;

    const typename Engine::Communicator& operator[](Over over) const noexcept {
        using Member = typename Engine::Communicator GroupCommunicators::*;
        constexpr Member members[] = {&GroupCommunicators::shards, &GroupCommunicators::replicas,
                                      &GroupCommunicators::data, &GroupCommunicators::tp};
        return this->*members[static_cast<std::size_t>(over)];
    }
};

/// Returns the extent of the mesh's axis dp, which a policy splits into shard groups.
template <class Engine>
std::size_t dp_extent(const Context<Engine>& context) {
    return context.grid().extent(Dp::name);
}

/// Makes the communicators of a group that `policy` shards. Collective over the mesh on first use.
/// @throws std::invalid_argument when the path is empty, or the policy's shard group does not divide dp
template <class Engine>
GroupCommunicators<Engine> make_communicators(Context<Engine>& context, std::string_view path,
                                              const PolicyValues& policy, SourceLocation where) {
    if (path.empty()) { throw_invalid_argument(where, "Sharded: the path is empty, expected a name as 'blocks.3'"); }
    const AxisGrid split = split_mesh(context.grid(), policy, path, where);
    const auto over = [&](Over ranks) { return context.communicator(split, axes_of(ranks, policy), where); };
    return {over(Over::shards), over(Over::replicas), over(Over::data), over(Over::tp)};
}

/// Returns what ranks compare of a group: 52 bits of a hash of everything that they must agree on, and for an error's
/// text the number of its parameters and of its elements.
inline std::array<double, 3> fingerprint(const GroupGeometry& group) {
    Fnv all;
    std::uint64_t numel = 0;
    all.add(group.path);
    all.add(group.policy.name);
    all.add(group.buffer_numel);
    all.add(group.shard_numel);
    all.add(group.keeps_master() ? 1 : 0);
    all.add(group.stochastic_rounding ? group.stochastic_rounding->seed : 0);
    for (const PlacedParameter& p : group.parameters) {
        all.add(p.name);
        all.add(std::span(p.shape.extents).first(p.shape.rank));
        all.add(static_cast<std::uint64_t>(p.tp.kind));
        all.add(p.tp.dimension);
        all.add((p.frozen ? 1U : 0U) + (p.decay ? 2U : 0U));
        numel += p.shape.numel();
    }
    return {static_cast<double>(all.hash >> 12U), static_cast<double>(group.parameters.size()),
            static_cast<double>(numel)};
}

/// Checks that every rank gives the same group: names, shapes, numbers, attributes, policy, master weights and seed.
/// Buffers with different layouts can have the same size, and then no collective would fail.
/// Order:   collective over the world; the host waits.
/// Cost:    24 bytes of each rank, once for each group.
/// @throws  std::invalid_argument, the same on every rank, which names the group, two ranks that differ and what each
/// has
template <class Engine>
void require_same_group(Context<Engine>& context, const GroupGeometry& group, SourceLocation where) {
    if (context.world_size() == 1) { return; }
    const auto own = fingerprint(group);
    const std::vector<double> all = gather_values(context, own, where);
    const std::size_t other = first_apart(all, own.size());
    if (other == context.world_size()) { return; }
    const auto has = [&](std::size_t rank) {
        const auto of = [&](std::size_t field) { return static_cast<std::uint64_t>(all[rank * own.size() + field]); };
        return concat("rank ", rank, " has ", of(1), of(1) == 1 ? " parameter of " : " parameters of ", of(2),
                      " elements (hash ", of(0), ")");
    };
    throw_invalid_argument(
        where, "'", group.path, "': ", has(other), ", ", has(0),
        ", expected the same path, names, shapes, attributes, policy, masters and seed on every rank");
}

}  // namespace shardkit::detail
