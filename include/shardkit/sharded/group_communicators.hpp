// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <shardkit/comm/agreement.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/policy/group_mesh.hpp>
#include <shardkit/rank/gather_values.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/group_geometry.hpp>

namespace shardkit::detail {

/// The communicators of a group of parameters, as seen from one rank.
struct GroupCommunicators {
    Communicator shards;    ///< over the policy's shard axes
    Communicator replicas;  ///< over the remaining data axes
    Communicator data;      ///< over all data axes
    Communicator tp;
    Communicator ep;  ///< those that share its experts; in a group of other parameters that of tp

    const Communicator& operator[](Over over) const noexcept {
        using Member = Communicator GroupCommunicators::*;
        constexpr Member members[] = {&GroupCommunicators::shards, &GroupCommunicators::replicas,
                                      &GroupCommunicators::data, &GroupCommunicators::tp};
        return this->*members[static_cast<std::size_t>(over)];
    }
};

/// Makes the communicators of a group that `policy` shards, of experts or of other parameters. Collective over the
/// mesh on first use.
/// @throws std::invalid_argument when the path is empty, or the policy's shard group does not divide dp
inline GroupCommunicators make_communicators(Rank& rank, std::string_view path, const rules::PolicyValues& policy,
                                             bool experts, SourceLocation where) {
    if (path.empty()) { throw_invalid_argument(where, "Sharded: the path is empty, expected a name as 'blocks.3'"); }
    const GroupMesh ranks(rank.grid(), policy, experts, path, where);
    const auto over = [&](const AxisNames& axes) { return rank.communicator(ranks.grid(), axes, where); };
    const Communicator shards = over(ranks.axes(Over::shards));
    const Communicator replicas = over(ranks.axes(Over::replicas));
    const Communicator data = over(ranks.axes(Over::data));
    const Communicator tp = over(ranks.axes(Over::tp));
    return {shards, replicas, data, tp, experts ? over(Axes<Ep>{}) : tp};
}

/// Refuses sums along a tree where the engine has none, or where ranks are no power of two.
inline void require_summation(const GroupCommunicators& ranks, const rules::PolicyValues& policy,
                              std::string_view path, SourceLocation where) {
    if (policy.summation != Summation::tree) { return; }
    if (!ranks.data.traits().adds_along_trees) {
        throw_usage_error(where, "'", path, "': policy '", policy.name, "' adds along a tree, and the engine ",
                          ranks.data.engine_name(),
                          " has no tree_sum, expected an engine whose traits say adds_along_trees");
    }
    for (const auto* comm : {&ranks.shards, &ranks.replicas, &ranks.ep}) {
        if (comm == &ranks.ep && !policy.slices) { continue; }
        if (!std::has_single_bit(comm->size())) {
            throw_invalid_argument(where, "'", path, "': policy '", policy.name, "' adds along a tree over ",
                                   comm->size(), " ranks of ", comm->axes(), ", expected a power of two");
        }
    }
}

/// Returns a row in one line.
inline std::string row_text(const AxisPlacements& row) {
    return concat(name(row.parameters), "/", name(row.reduced), "/", name(row.states));
}

/// Returns what all ranks must give alike for a group.
inline Statements statements_of(const GroupGeometry& group) {
    constexpr std::string_view released[] = {"never", "at the update", "at reshard"};
    Statements all;
    all.reserve(12 + group.parameters.size());
    all.push_back({"path", group.path});
    all.push_back({"policy", std::string(group.policy.name)});
    all.push_back({"placements within groups",
                   concat("of ", group.policy.shard_group, " as ", row_text(group.policy.within_groups()))});
    all.push_back(
        {"placements across groups", concat("as ", row_text(group.policy.across_groups),
                                            group.policy.keep == Keep::secondary ? ", a secondary shard kept" : "")});
    all.push_back({"full copies", concat("released ", released[static_cast<std::size_t>(group.policy.release)])});
    all.push_back({"sums", group.policy.slices > 0 ? concat("along a tree of ", group.policy.slices, " slices")
                           : group.policy.summation == Summation::tree ? "along a tree"
                                                                       : "in rank order"});
    all.push_back({"parameters", concat(group.parameters.size(), " in number")});
    std::size_t number = 0;
    for (const PlacedParameter& p : group.parameters) {
        std::string value =
            concat("of shape ", p.shape.describe(), p.frozen ? ", frozen" : "", p.decay ? "" : ", without decay",
                   p.matrix ? "" : ", no matrix", p.experts ? ", a stack of experts" : "",
                   p.overwritten ? ", with a gradient that is overwritten" : "");
        if (p.tp.kind == TpPlacement::Kind::split) { append(value, ", split along dimension ", p.tp.dimension); }
        if (p.tp.kind == TpPlacement::Kind::partial_sum) { value += ", a partial sum over tp"; }
        all.push_back({concat("parameter ", number++), concat(value, ", called '", p.name, "'")});
    }
    all.push_back({"padding", concat("to ", group.buffer_numel, " elements, ", group.shard_numel, " of a shard")});
    all.push_back({"master weights", group.keeps_master() ? "kept" : group.splits_master() ? "split" : "not kept"});
    all.push_back({"stochastic rounding",
                   group.stochastic_rounding ? concat("of seed ", group.stochastic_rounding->seed) : "off"});
    all.push_back({"gradients", group.table.releases ? "released at the update" : "kept"});
    all.push_back({"offload", group.offload == Offload::none     ? "none"
                              : group.offload == Offload::states ? "states"
                                                                 : "update"});
    return all;
}

}  // namespace shardkit::detail

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// Checks that every rank gives the same group: names, shapes, numbers, attributes, policy, master weights and seed.
/// Buffers with different layouts can have the same size, and then no collective would fail.
/// Order:   collective over the world; the host waits.
/// Cost:    8 bytes of each rank, once for each group. If ranks differ, some hundred bytes more for each statement.
/// @throws  std::invalid_argument, the same on every rank, which names the group, two ranks that differ and what each
///          has
inline void require_same_group(Rank& rank, const GroupGeometry& group, SourceLocation where) {
    if (rank.world_size() == 1) { return; }
    const Statements own = statements_of(group);
    Fnv fnv;
    for (const Statement& one : own) { fnv.add(one.value); }
    const auto hash = static_cast<double>(fnv.hash >> 12U);
    const std::size_t other = first_apart(gather_values(rank, std::span(&hash, 1), where));
    if (other == rank.world_size()) { return; }
    const auto [first, second] = stated_apart(0, other, where, [&](std::size_t number) {
        const StatementRecord mine(own, number);
        const auto* const raw = reinterpret_cast<const unsigned char*>(&mine);
        List<double> bytes(sizeof mine);
        for (std::size_t i = 0; i < sizeof mine; ++i) { bytes[i] = raw[i]; }
        const List<double> all = gather_values(rank, bytes.span(), where);
        List<StatementRecord> records(rank.world_size());
        auto* const to = reinterpret_cast<unsigned char*>(records.data());
        for (std::size_t i = 0; i < all.size(); ++i) { to[i] = static_cast<unsigned char>(all[i]); }
        return records;
    });
    throw_invalid_argument(
        where, "'", group.path, "': rank 0 makes it", first, ", rank ", other, second,
        ", expected the same path, names, shapes, attributes, policy, masters and seed on every rank");
}

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
