// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <shardkit/policy/policies.hpp>

#include "unit/checked/both_builds.hpp"
#include "unit/sharded/trainer.hpp"

namespace both_builds SHARDKIT_BUILD {

/// Four ranks, three microbatches, AdamW with clipping; the same source in both builds.
inline std::vector<double> train_case(Case which) {
    const toy::Training training{
        .samples = 24, .microbatches = 3, .rule = toy::Rule::adamw, .learning_rate = 0.01, .clip = 1};
    const toy::Mesh mesh(4, 1, 1);
    namespace sk = shardkit;
    const auto flat = [](const std::vector<toy::RankResult>& ranks) {
        std::vector<double> values = ranks[0].norms;
        for (const auto& tensor : ranks[0].parameters) { values.insert(values.end(), tensor.begin(), tensor.end()); }
        return values;
    };
    switch (which) {
        case Case::no_shard:
            return flat(toy::train<sk::Precision<float>>(mesh, sk::NoShard{}, training));
        case Case::full_shard:
            return flat(toy::train<sk::Precision<float>>(mesh, sk::FullShard{}, training));
        case Case::hybrid_shard:
            return flat(toy::train<sk::Precision<float>>(mesh, sk::HybridShard<2>{}, training));
        case Case::full_shard_bf16:
            return flat(toy::train<sk::Precision<sk::bf16>>(mesh, sk::FullShard{}, training));
    }
    return {};
}

}  // namespace both_builds SHARDKIT_BUILD
