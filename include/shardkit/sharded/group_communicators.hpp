// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/comm/all_gather.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/policy/split_mesh.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/sharded/group_geometry.hpp>

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

/// The extent of the mesh's axis dp, which a policy cuts into shard groups.
template <class Engine>
std::size_t dp_extent(const Context<Engine>& context) {
    return context.grid().extent(Dp::name);
}

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

/// What ranks compare of a group: how many parameters of how many elements, and a hash of everything that all ranks
/// must agree on.
struct GroupFingerprint : Fnv {
    std::uint64_t parameters = 0;
    std::uint64_t numel = 0;

    explicit GroupFingerprint(const GroupGeometry& group) {
        add(group.path);
        add(group.policy.name);
        add(group.buffer_numel);
        add(group.shard_numel);
        add(group.keeps_master() ? 1 : 0);
        add(group.stochastic_rounding ? group.stochastic_rounding->seed : 0);
        for (const PlacedParameter& p : group.parameters) {
            add(p.name);
            add(std::span(p.shape.extents).first(p.shape.rank));
            add(static_cast<std::uint64_t>(p.tp.kind));
            add(p.tp.dimension);
            add((p.frozen ? 1U : 0U) + (p.decay ? 2U : 0U));
            ++parameters;
            numel += p.shape.numel();
        }
    }
};

/// Refuses a group that is not the same on every rank: other names, shapes, numbers, attributes, another policy,
/// masters or seed. Buffers of other layouts can have one size, and then nothing that communicates would notice.
/// Order:   collective over the world; the host waits. The numbers travel as doubles, as the norm's do, so that an
///          engine needs nothing more for them; 52 bits of the hash.
/// Cost:    24 bytes of each rank, once for each group.
/// @throws  std::invalid_argument, the same on every rank: the group, two ranks that differ, and what each has
template <class Engine>
void require_same_group(Context<Engine>& context, const GroupGeometry& group, SourceLocation where) {
    const auto& world = context.world();
    if (world.size() == 1) { return; }
    constexpr std::size_t fields = 3;
    const GroupFingerprint own(group);
    const std::array<double, fields> given{static_cast<double>(own.hash >> 12U), static_cast<double>(own.parameters),
                                           static_cast<double>(own.numel)};
    const EngineTable<Engine, double> mine(context, std::span<const double>(given));
    const auto gathered = EngineTable<Engine, double>::zeroed(context, fields * world.size());
    const auto stream = context.compute_stream();  // in which the table was written
    all_gather(world, std::span<const double>(mine.span()), gathered.span(), stream, where);
    std::vector<double> all(gathered.size());
    Engine::Kernels::copy_out(stream, std::span<const double>(gathered.span()), std::span<double>(all));
    const auto has = [&](std::size_t rank) {
        const auto of = [&](std::size_t field) { return static_cast<std::uint64_t>(all[rank * fields + field]); };
        return concat("rank ", rank, " has ", of(1), of(1) == 1 ? " parameter of " : " parameters of ", of(2),
                      " elements (hash ", of(0), ")");
    };
    for (std::size_t rank = 1; rank < world.size(); ++rank) {
        if (all[rank * fields] == all[0]) { continue; }
        throw_invalid_argument(
            where, "'", group.path, "': ", has(rank), ", ", has(0),
            ", expected the same path, names, shapes, attributes, policy, masters and seed on every rank");
    }
}

}  // namespace shardkit::detail
