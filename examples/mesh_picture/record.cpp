// SPDX-License-Identifier: Apache-2.0
#include "record.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/mesh/expert_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/sharded/list_shards.hpp>
#include <shardkit/step/model.hpp>

#include "parameters.hpp"

namespace mesh_picture {

namespace sk = shardkit;

namespace {

using Mesh = sk::ExpertMesh<sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>>;
using Traffic = std::vector<sk::TrafficLog::Entry>;

/// Moves what the log has since the last call into `traffic`, one entry for each verb and set of axes.
void take(sk::TrafficLog& log, Traffic& traffic) {
    for (const sk::TrafficLog::Entry& entry : log.entries()) {
        const auto same = std::find_if(traffic.begin(), traffic.end(), [&](const sk::TrafficLog::Entry& known) {
            return known.verb == entry.verb && known.axes == entry.axes;
        });
        if (same == traffic.end()) {
            traffic.push_back(entry);
        } else {
            same->calls += entry.calls;
            same->moved += entry.moved;
        }
    }
    log.clear();
}

/// One step towards zero: the gradient of a weight is the weight.
template <class Layer, class Optimizer>
void train(Layer& layer, Optimizer& optimizer, std::size_t microbatches, RankFacts& facts) {
    const auto took = [&](std::size_t call) { take(layer.rank().traffic(), facts.traffic[call]); };
    facts.traffic = {};
    layer.rank().traffic().clear();
    sk::Model model{layer};
    sk::Accumulation accumulation{model, sk::until_reduced};  // so that what adding communicates is not in reducing's
    for (std::size_t m = 0; m < microbatches; ++m) {
        layer.reshard(layer.unshard());
        took(0);
        auto window = layer.unshard();
        took(1);
        auto gradients = accumulation.gradients(layer);
        const auto values = window.view(0);
        for (std::size_t i = 0; i < values.size(); ++i) { gradients.view(0).data()[i] += values.data()[i]; }
        layer.reshard(std::move(window));
        accumulation.add(std::move(gradients));
        took(2);
    }
    auto reduced = sk::reduce(std::move(accumulation), sk::mean);
    took(3);
    const auto norm = sk::global_norm(reduced);
    took(4);
    optimizer.step(std::move(reduced), sk::clip(norm, 1.0));
    took(5);
}

template <class Layer, class Optimizer>
void list_held(const Layer& layer, Optimizer& optimizer, RankFacts& facts) {
    auto& state = sk::spi::group(layer);
    auto& gradients = state.gradients();
    const auto& table = state.geometry().table;
    const auto list = [&](sk::detail::Extent extent, const sk::detail::StoredElements& values,
                          std::vector<sk::ShardInfo>& held) {
        list_shards(state.geometry(), {sk::detail::Role::reduced, {}, values, state.geometry().range(extent), extent},
                    held);
    };
    facts.held[0] = layer.shards();
    list(table.reduced, gradients.reduced(), facts.held[2]);
    if (layer.policy().values().accumulate == sk::Accumulate::reduced) {
        list(table.summed(), gradients.held_sums(), facts.held[1]);
    } else {
        list(sk::detail::Extent::full, gradients.full(), facts.held[1]);
    }
    for (sk::ShardInfo& info : optimizer.shards()) {
        if (info.kind == "exp_avg") { facts.held[3].push_back(std::move(info)); }  // exp_avg_sq lies likewise
    }
}

template <class Group>
Facts record_group(const Options& options) {
    const sk::DynamicPolicy policy = options.policy.policy();
    const Mesh mesh(sk::DeviceMesh(options.mesh.dp, options.mesh.tp, options.mesh.cp),
                    std::max<std::size_t>(options.ep, 1));
    const std::size_t shard_group = policy.shard_group(options.mesh.dp);
    Facts facts;
    facts.grid = options.ep > 0 ? mesh.grid().split_experts(shard_group)
                                : mesh.grid().split_axis("dp", shard_group, "dp_replicate", "dp_shard");
    facts.ranks.resize(mesh.size());
    sk::threads::run(mesh, [&](auto& rank) {
        using Layer = sk::Sharded<Group, sk::DynamicPolicy>;
        Layer layer(static_cast<sk::Rank&>(rank), "model", {}, typename Layer::Options{policy});
        layer.initialize([](auto, auto, std::uint64_t i) { return std::sin(static_cast<double>(i)); });
        sk::Model model{layer};
        sk::AdamW optimizer{model};
        RankFacts& mine = facts.ranks[rank.rank()];
        train(layer, optimizer, options.microbatches, mine);  // the first step has no update to gather
        train(layer, optimizer, options.microbatches, mine);
        list_held(layer, optimizer, mine);
        const auto& geometry = sk::spi::group(layer).geometry();
        for (const sk::PlacedParameter& p : geometry.parameters) { mine.parts.push_back(p.part); }
        if (rank.rank() != 0) { return; }
        facts.buffer_numel = geometry.buffer_numel;
        facts.shards = geometry.parts_of(geometry.table.updated);
        for (const sk::PlacedParameter& p : geometry.parameters) {
            facts.parameters.push_back({p.name, p.shape, p.tp, p.range});
        }
    });
    return facts;
}

}  // namespace

Facts record(const Options& options) {
    return options.ep > 0 ? record_group<Experts>(options) : record_group<Group>(options);
}

}  // namespace mesh_picture
