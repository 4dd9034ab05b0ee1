// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint.hpp>
#include <shardkit/comm/split.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/reshard.hpp>

#include "checkpoint_training.hpp"

/// States of checkpoint_training on meshes over parts of one world, and what brings one to another.
namespace reshard_training {

namespace sk = shardkit;
using checkpoint_training::Mesh;

/// A mesh over the ranks from `first` on, and a policy.
struct Side {
    Mesh mesh;
    sk::DynamicPolicy policy;
    std::size_t first = 0;

    bool has(std::size_t rank) const { return rank >= first && rank - first < mesh.size(); }
    std::string text() const {
        return std::to_string(mesh.dp()) + "x" + std::to_string(mesh.tp()) + "x" + std::to_string(mesh.cp()) + " " +
               std::string(policy.name()) + " from " + std::to_string(first);
    }
};

/// All of up to `world` ranks, but for those of which tp divides no tensor.
inline std::vector<Side> sides(std::size_t world) {
    std::vector<Side> all;
    for (std::size_t ranks = 1; ranks <= world; ++ranks) {
        for (const Mesh& mesh : checkpoint_training::meshes(ranks)) {
            if (mesh.tp() == 7) { continue; }
            for (const sk::DynamicPolicy& policy : checkpoint_training::policies(mesh)) {
                all.push_back({mesh, policy, 0});
            }
        }
    }
    return all;
}

/// This rank on the side's mesh; null where it has no place there. Collective over the world.
template <class Rank>
auto part_of(Rank& rank, const Side& side) {
    using Part = sk::Rank<sk::EngineOf<Rank>, Mesh>;
    const bool is_in = side.has(rank.rank());
    const auto ranks = sk::split(rank.world(), is_in ? 0 : 1, rank.rank(), "part");
    return is_in ? std::make_unique<Part>(side.mesh, ranks, sk::RankOptions{}, rank.streams())
                 : std::unique_ptr<Part>();
}

/// The elements that a rank of a side keeps of each tensor between steps, by the documented rules alone: row-major
/// ranks, shards over dp, those of HybridShard<2> over pairs of its ranks.
template <class Training>
std::map<std::string, std::vector<bool>> kept_elements(Training& training, const Side& side, std::size_t rank) {
    const std::size_t dp_i = rank / (side.mesh.cp() * side.mesh.tp());
    std::map<std::string, std::vector<bool>> kept;
    const auto add = [&](auto& group) {
        const auto layout = group.layout();
        const std::string_view policy = side.policy.name();
        const bool hybrid = policy == sk::DynamicPolicy(sk::HybridShard<2>{}).name();
        const std::size_t index = hybrid ? dp_i % 2 : dp_i;
        const sk::IndexRange own = policy == sk::DynamicPolicy(sk::NoShard{}).name()
                                       ? sk::IndexRange{0, layout.buffer_numel()}
                                       : layout.shard(index);
        for (const sk::PlacedParameter& parameter : group.parameters()) {
            std::vector<bool>& of = kept[group.path() + "." + std::string(parameter.name)];
            of.resize(parameter.shape.numel());
            for (std::size_t flat = own.begin; flat < own.end; ++flat) {
                if (flat < parameter.range.begin || flat >= parameter.range.end) { continue; }
                of[parameter.part.whole_index(flat - parameter.range.begin)] = true;
            }
        }
    };
    add(training.layer);
    add(training.listed);
    add(training.skipped);
    return kept;
}

/// The bytes of an element that travel from states of From to states of To, for all of its values. A parameter comes
/// from the model's tensor if that has its type, and otherwise from the master if there is one. What both come from
/// travels once.
template <class From, class To>
std::uint64_t bytes_of(bool frozen) {
    if (frozen) { return sizeof(From); }
    const bool both = sizeof(From) == 2 && sizeof(To) == 2;
    return (both ? sizeof(From) : 0) + sizeof(float) + 2 * sizeof(float);
}

/// Brings the state in `folder`, loaded to the source, to the destination, and saves what that has in `saved`.
/// Collective over the world. @throws std::logic_error where a rank is sent other bytes than it lacks
template <class From, class To, class Rank>
void load_reshard_and_save(Rank& rank, const Side& from, const Side& to, const std::string& folder,
                           const std::string& saved, sk::checkpoint::FileCalls& files,
                           const sk::ReshardOptions& options = {}) {
    using Engine = sk::EngineOf<Rank>;
    using Optimizer = checkpoint_training::WithAdamW;
    using Source = checkpoint_training::Training<Engine, From, Optimizer>;
    using Destination = checkpoint_training::Training<Engine, To, Optimizer>;
    const auto source_rank = part_of(rank, from);
    const auto destination_rank = part_of(rank, to);
    std::optional<Source> source;
    std::optional<Destination> destination;
    if (source_rank != nullptr) {
        source.emplace(*source_rank, from.policy);
        sk::checkpoint::load(*source_rank, folder + "/step-00000001", source->state, {.files = &files});
    }
    if (destination_rank != nullptr) { destination.emplace(*destination_rank, to.policy); }
    const sk::checkpoint::State<Engine>* const given = source ? &source->state : nullptr;
    const sk::checkpoint::State<Engine>* const taken = destination ? &destination->state : nullptr;
    const sk::ReshardPlan plan = sk::plan_reshard(rank, given, taken, options);
    std::uint64_t expected = 0;
    if (destination) {
        const auto needed = kept_elements(*destination, to, rank.rank() - to.first);
        const auto held = source ? kept_elements(*source, from, rank.rank() - from.first)
                                 : std::map<std::string, std::vector<bool>>();
        for (const auto& [name, elements] : needed) {
            const auto own = held.find(name);
            const auto lacking = static_cast<std::uint64_t>(
                own == held.end()
                    ? std::count(elements.begin(), elements.end(), true)
                    : std::inner_product(elements.begin(), elements.end(), own->second.begin(), std::ptrdiff_t{0},
                                         std::plus<>(), [](bool needs, bool has) { return needs && !has ? 1 : 0; }));
            expected += lacking * bytes_of<From, To>(name == "layer.fixed");
        }
    }
    if (plan.received(rank.rank()) != expected) {
        throw std::logic_error("rank " + std::to_string(rank.rank()) + " is sent " +
                               std::to_string(plan.received(rank.rank())) + " bytes, and lacks " +
                               std::to_string(expected) + "\n" + plan.describe());
    }
    const auto before = rank.traffic().total(sk::Verb::receive).moved;
    sk::reshard(rank, plan, given, taken);
    const auto received = rank.traffic().total(sk::Verb::receive).moved.value - before.value;
    if (received != expected) { throw std::logic_error("other bytes were received than planned"); }
    if (destination) { sk::checkpoint::save(*destination_rank, saved, 1, destination->state, {.files = &files}); }
}

}  // namespace reshard_training
