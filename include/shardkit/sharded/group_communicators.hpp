// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <initializer_list>
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
#include <shardkit/rank/rank_resources.hpp>
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

/// The communicators of a rank's groups so far: groups that are split alike have the same.
struct KnownCommunicators {
    struct Known {
        std::size_t shard_group;
        AxisNames shard_axes;
        bool experts;
        GroupCommunicators ranks;
    };
    explicit KnownCommunicators(const Rank& /*rank*/) {}

    std::forward_list<Known> known;
};

/// Makes the communicators of a group that `policy` shards, of experts or of other parameters. Collective over the
/// mesh on first use.
/// @throws std::invalid_argument when the path is empty, or the policy's shard group does not divide dp
[[gnu::cold]] inline GroupCommunicators make_communicators(Rank& rank, std::string_view path,
                                                           const rules::PolicyValues& policy, bool experts,
                                                           SourceLocation where) {
    if (path.empty()) { throw_invalid_argument(where, "Sharded: the path is empty, expected a name as 'blocks.3'"); }
    auto& known = rank.kept<KnownCommunicators>().known;
    for (const auto& each : known) {
        if (each.experts == experts && each.shard_group == policy.shard_group &&
            each.shard_axes == policy.shard_axes) {
            return each.ranks;
        }
    }
    const GroupMesh ranks(rank.grid(), policy, experts, path, where);
    const auto over = [&](const AxisNames& axes) { return rank.communicator(ranks.grid(), axes, where); };
    const Communicator shards = over(ranks.axes(Over::shards));
    const Communicator replicas = over(ranks.axes(Over::replicas));
    const Communicator data = over(ranks.axes(Over::data));
    const Communicator tp = over(ranks.axes(Over::tp));
    GroupCommunicators made{shards, replicas, data, tp, experts ? over(Axes<Ep>{}) : tp};
    if (std::string& first = RankResources::of(rank).first_group; first.empty()) { first = path; }
    known.push_front({policy.shard_group, policy.shard_axes, experts, made});
    return made;
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

/// What all ranks must give alike for a group: a hash of it, or the statements.
class GroupFacts {
  public:
    using Pieces = std::initializer_list<Piece>;

    /// Hashes the facts, or appends them to `texts`.
    [[gnu::cold]] explicit GroupFacts(const GroupGeometry& group, Statements* texts = nullptr) : texts_(texts) {
        constexpr std::string_view released[] = {"never", "at the update", "at reshard"};
        const rules::PolicyValues& policy = group.policy;
        const AxisPlacements within = policy.within_groups();
        const AxisPlacements& across = policy.across_groups;
        add("path", {group.path});
        add("policy", {policy.name});
        add("placements within groups", {"of ", policy.shard_group, " as ", name(within.parameters), "/",
                                         name(within.reduced), "/", name(within.states)});
        add("placements across groups",
            {"as ", name(across.parameters), "/", name(across.reduced), "/", name(across.states),
             policy.keep == Keep::secondary ? ", a secondary shard kept" : ""});
        add("full copies", {"released ", released[static_cast<std::size_t>(policy.release)]});
        if (policy.slices > 0) {
            add("sums", {"along a tree of ", policy.slices, " slices"});
        } else {
            add("sums", {policy.summation == Summation::tree ? "along a tree" : "in rank order"});
        }
        add("parameters", {group.parameters.size(), " in number"});
        std::size_t number = 0;
        for (const PlacedParameter& p : group.parameters) {
            const std::string shape = p.shape.describe();
            const bool split = p.tp.kind == TpPlacement::Kind::split;
            add(concat("parameter ", number++),
                {"of shape ", shape, p.frozen ? ", frozen" : "", p.decay ? "" : ", without decay",
                 p.matrix ? "" : ", no matrix", p.experts ? ", a stack of experts" : "",
                 p.overwritten ? ", with a gradient that is overwritten" : "",
                 split ? ", split along dimension " : "", split ? Piece(p.tp.dimension) : Piece(""),
                 p.tp.kind == TpPlacement::Kind::partial_sum ? ", a partial sum over tp" : "", ", called '", p.name,
                 "'"});
        }
        add("padding", {"to ", group.buffer_numel, " elements, ", group.shard_numel, " of a shard"});
        add("master weights", {group.keeps_master() ? "kept" : group.splits_master() ? "split" : "not kept"});
        if (group.stochastic_rounding) {
            add("stochastic rounding", {"of seed ", group.stochastic_rounding->seed});
        } else {
            add("stochastic rounding", {"off"});
        }
        add("gradients", {group.table.releases ? "released at the update" : "kept"});
        add("offload", {group.offload == Offload::none     ? "none"
                        : group.offload == Offload::states ? "states"
                                                           : "update"});
    }
    std::uint64_t hash() const noexcept { return hash_.hash; }

  private:
    void add(Piece name, Pieces value) {
        if (texts_ == nullptr) {
            for (const Piece& piece : value) { piece.add_to(hash_); }
        } else {
            texts_->push_back({joined(&name, 1), joined(value.begin(), value.size())});
        }
    }

    Fnv hash_;
    Statements* texts_;
};

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
    const auto hash = static_cast<double>(GroupFacts(group).hash() >> 12U);
    const std::size_t other = first_apart(gather_values(rank, std::span(&hash, 1), where));
    if (other == rank.world_size()) { return; }
    Statements own;
    GroupFacts(group, &own);
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
