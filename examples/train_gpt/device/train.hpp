// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include <shardkit/backend/cuda/step_graph.hpp>

#include "../program/adamw.hpp"
#include "../program/rank_steps.hpp"
#include "engine_place.hpp"
#include "products.hpp"

namespace train_gpt {

/// Trains on one rank; `results`: as RankSteps has them. `launched` is called behind each launch of a graph.
template <class T>
void train_on_device(
    sk::Rank& rank, const Job& job, std::size_t workspace_bytes, Results* results,
    const std::function<void()>& launched = [] {}) {
    const auto workspace = rank.local_buffer<std::uint8_t>(workspace_bytes);
    const DeviceProducts products(rank.compute_stream().native(), workspace.span());
    RankSteps<T, DevicePlace> steps(
        rank, job, results, nullptr,
        [](const auto& groups, const Options& options) { return make_adamw<sk::StateFormat::full>(groups, options); },
        {EngineLaunch{rank.compute_stream()}, products});
    std::optional<sk::gpu::StepGraph> graph;
    // The first step is a plain one: it takes memory, which a capture refuses.
    bool plain = true;
    steps.run([&](auto& trainer) {
        if (std::exchange(plain, !job.options.graph)) { return trainer.step(); }
        if (!graph) {
            graph.emplace(rank.streams(), [&] { trainer.step(); });
        }
        graph->launch();
        launched();
    });
}

}  // namespace train_gpt
