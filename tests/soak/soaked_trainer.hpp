// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/named_policy.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verify/verify_replicas.hpp>

#include "faults/faulty.hpp"

/// The small trainer over which faults are planted, and what may come of each fault.
namespace soak {

namespace sk = shardkit;
using planted::Fault;
using planted::FaultKind;

struct Weight : sk::Param<"weight", float, 5, 3> {};
struct Bias : sk::Param<"bias", float, 3> {};
using Net = sk::Params<Weight, Bias>;

inline constexpr std::string_view policies[] = {"no_shard", "shard_optimizer", "shard_grad_op", "full_shard",
                                                "hybrid_shard:2"};

/// A run's place and faults, all from its seed.
struct Trial {
    std::string_view policy;
    std::size_t ranks = 2;
    bool overlap = false;
};
/// The trial of a seed: `ranks` are given where processes are there already.
inline Trial trial_of(std::uint64_t seed, std::size_t ranks = 0) {
    Trial trial{policies[seed % 5], ranks == 0 ? 2 + seed / 5 % 3 : ranks, seed / 15 % 4 == 3};
    if (trial.policy == policies[4] && trial.ranks % 2 != 0) {
        ranks == 0 ? static_cast<void>(++trial.ranks) : static_cast<void>(trial.policy = policies[3]);
    }
    return trial;
}

/// What a rank has of a run's numbers: its losses, and the bytes of all that it holds at the end.
struct Numbers {
    std::vector<double> losses;
    std::vector<std::vector<std::uint8_t>> held;

    friend bool operator==(const Numbers&, const Numbers&) = default;
};

/// Two steps of two microbatches. Replicas are verified before each update, where full copies are current, and behind
/// it.
template <class Rank>
void train(Rank& rank, std::string_view policy, Numbers& numbers) {
    using Layer = sk::Sharded<Net, sk::DynamicPolicy>;
    std::vector<Layer> layers;
    for (const char* const path : {"first", "second"}) {
        layers.push_back(Layer(rank, path, sk::Shapes<Net>{}, typename Layer::Options{sk::named_policy(policy)}));
        layers.back().initialize([](auto, auto, std::uint64_t i) { return std::sin(static_cast<double>(i + 1)); });
    }
    sk::Model model{layers};
    sk::AdamW optimizer{model, {.learning_rate = 0.125}};
    for (int step = 0; step < 2; ++step) {
        sk::Accumulation accumulation{model, 2};
        double loss = 0;
        for (std::size_t microbatch = 0; microbatch < 2; ++microbatch) {
            for (std::size_t l = layers.size(); l-- > 0;) {
                auto window = layers[l].unshard();
                auto gradients = accumulation.gradients(layers[l]);
                for (std::size_t p = 0; p < Net::count; ++p) {
                    const auto values = window.view(p);
                    const auto into = gradients.view(p);
                    for (std::size_t i = 0; i < values.size(); ++i) {
                        const float error = values.data()[i] - static_cast<float>(rank.rank() + microbatch + l);
                        into.data()[i] += error;
                        loss += double{error} * double{error};
                    }
                }
                layers[l].reshard(std::move(window));
                accumulation.add(std::move(gradients));
            }
        }
        sk::all_reduce_in_place(rank.world(), sk::ReduceOp::sum, std::span(&loss, 1));
        numbers.losses.push_back(loss);
        auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        sk::verify_replicas(model, optimizer);
        const auto norm = sk::global_norm(reduced);
        optimizer.step(std::move(reduced), sk::clip(norm, 1.0));
        sk::verify_replicas(model, optimizer);
    }
    const auto keep = [&](const sk::ShardInfo& info) {
        if (!info.current) { return; }
        const auto* const bytes = static_cast<const std::uint8_t*>(info.data);
        numbers.held.emplace_back(bytes, bytes + info.local.size() * sk::size_of(info.type));
    };
    for (auto& layer : layers) {
        for (const sk::ShardInfo& info : layer.shards()) { keep(info); }
    }
    for (const sk::ShardInfo& info : optimizer.shards()) { keep(info); }
}

/// Whether wrong data that a call delivers may stay unseen: where one rank alone holds what becomes of it, as
/// docs/when_things_fail.md says. `struck` is what the fault told.
inline bool may_stay_unseen(const Trial& trial, std::string_view struck) {
    const auto has = [&](std::string_view part) { return struck.find(part) != std::string_view::npos; };
    const bool whole = trial.policy == policies[0];
    const bool hybrid = trial.policy == policies[4];
    const bool replicas = hybrid && trial.ranks > 2;
    if (has("all_reduce") && has("soaked_trainer.hpp")) {
        // The trainer's own sum, its loss; the norm, whose coefficient is a rank's own, and is seen where shards of
        // replicas are updated by it.
        return has("sum of 1 fp64") || !(replicas || whole);
    }
    if (has("reduce_scatter")) { return true; }
    if (has("all_gather") && has(" parameters")) { return trial.policy == policies[3] || hybrid; }
    return false;
}

}  // namespace soak
