// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "../../cuda_trainer/graph.hpp"
#include "trainer.hpp"

namespace train_gpt {

/// Trains on one rank, and returns the loss of each step: report(step, loss) is called every options.every steps
/// and at the last one, launched() behind each launch of a graph.
template <class T, class Engine, class Report, class Launched>
std::vector<double> train_on_device(sk::Context<Engine>& context, const Options& options, std::span<const Token> text,
                                    std::size_t workspace_bytes, const Report& report, const Launched& launched) {
    DeviceTrainer<Engine, T> trainer(context, options, text, workspace_bytes);
    const std::size_t steps = options.steps;
    std::optional<cuda_trainer::after::StepGraph> graph;
    for (std::size_t step = 0; step < steps; ++step) {
        trainer.load(step);
        // The first step is a plain one: it takes memory, which a capture refuses.
        if (options.graph && step > 0) {
            if (!graph) {
                graph.emplace(context.streams(), [&] { trainer.step(); });
            }
            graph->launch();
            launched();
        } else {
            trainer.step();
        }
        trainer.keep_losses(step);
        if (step % options.every == 0 || step + 1 == steps) { report(step, trainer.losses(step, 1).front()); }
    }
    return trainer.losses(0, steps);
}

}  // namespace train_gpt
