// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/comm/cost.hpp>

namespace shardkit {

/// What a plan assumes of the trainer.
struct PlanOptions {
    std::size_t microbatches = 1;            ///< per step
    std::size_t in_flight = 2;               ///< RankOptions::in_flight: prefetch depth + 1
    std::size_t optimizer_states = 2;        ///< AdamW 2, Lion and SGD with momentum 1, plain SGD 0
    std::size_t windows_per_microbatch = 2;  ///< one in forward, one in backward
    std::size_t norms_per_step = 1;          ///< global_norm calls
    EngineTraits engine{};                   ///< Engine::traits; a plan of groups that exist takes their engine's
};

}  // namespace shardkit
