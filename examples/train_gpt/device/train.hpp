// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <shardkit/backend/cuda/step_graph.hpp>

#include "../program/adamw.hpp"
#include "../program/sharded_model.hpp"
#include "../program/trainer.hpp"
#include "engine_place.hpp"
#include "products.hpp"

namespace train_gpt {

/// What a run on a device tells.
struct DeviceReport {
    std::function<void(std::size_t step, double loss)> step;  // every options.every steps and at the last one
    std::function<void(const std::string& folder)> saved;     // behind each save
    std::function<void(const std::string& trace)> traced;  // of the last step, where asked for; empty but on rank 0
    std::function<void()> launched = [] {};                // behind each launch of a graph
};

/// Trains on one rank, and returns the loss of each step.
template <class T>
std::vector<double> train_on_device(sk::Rank& rank, const Job& job, std::size_t workspace_bytes,
                                    const DeviceReport& report) {
    const auto workspace = rank.local_buffer<std::uint8_t>(workspace_bytes);
    const DeviceProducts products(rank.compute_stream().native(), workspace.span());
    Trainer<ShardedModel<T, DevicePlace>, DevicePlace> trainer(
        rank, job,
        [](const auto& groups, const Options& options) { return make_adamw<sk::StateFormat::full>(groups, options); },
        {EngineLaunch{rank.compute_stream()}, products});
    const Options& options = job.options;
    const std::size_t first = job.start.first_step;
    const std::size_t steps = options.steps;
    std::vector<double> losses;
    std::optional<sk::gpu::StepGraph> graph;
    for (std::size_t step = first; step < steps; ++step) {
        const bool last = step + 1 == steps;
        const bool traces = last && !options.trace.empty();
        std::chrono::steady_clock::time_point together;
        trainer.load(step);
        if (traces) {
            trainer.measure();
            together = trainer.together();
        }
        // The first step is a plain one: it takes memory, which a capture refuses.
        if (options.graph && step > first) {
            if (!graph) {
                graph.emplace(rank.streams(), [&] { trainer.step(); });
            }
            graph->launch();
            report.launched();
        } else {
            trainer.step();
        }
        trainer.keep_losses(step);
        if (traces) { report.traced(trainer.trace(*job.chosen.schedule, together)); }
        if (step % options.every == 0 || last) {
            const std::size_t known = first + losses.size();
            std::ranges::copy(trainer.losses(known, step + 1 - known), std::back_inserter(losses));
            report.step(step, losses.back());
        }
        if (options.saves(step + 1, last)) { report.saved(trainer.save(step + 1)); }
    }
    return losses;
}

}  // namespace train_gpt
