// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "../../cuda_trainer/graph.hpp"
#include "trainer.hpp"

namespace train_gpt {

/// Trains on one rank, and returns the loss of each step: planned(memory) is called before the first step,
/// report(step, loss) every options.every steps and at the last one, saved(folder) behind each save, and launched()
/// behind each launch of a graph.
template <class T, class Engine, class Planned, class Report, class Saved, class Launched>
std::vector<double> train_on_device(sk::Context<Engine>& context, const Job& job, std::size_t workspace_bytes,
                                    const Planned& planned, const Report& report, const Saved& saved,
                                    const Launched& launched) {
    DeviceTrainer<Engine, T> trainer(context, job, workspace_bytes);
    planned(trainer.planned());
    const Options& options = job.options;
    const std::size_t first = job.start.first_step;
    const std::size_t steps = options.steps;
    std::optional<cuda_trainer::after::StepGraph> graph;
    for (std::size_t step = first; step < steps; ++step) {
        trainer.load(step);
        // The first step is a plain one: it takes memory, which a capture refuses.
        if (options.graph && step > first) {
            if (!graph) {
                graph.emplace(context.streams(), [&] { trainer.step(); });
            }
            graph->launch();
            launched();
        } else {
            trainer.step();
        }
        trainer.keep_losses(step);
        const bool last = step + 1 == steps;
        if (step % options.every == 0 || last) { report(step, trainer.losses(step, 1).front()); }
        if (save_is_due(options, step + 1, last)) { saved(trainer.save(step + 1)); }
    }
    return trainer.losses(first, steps - first);
}

}  // namespace train_gpt
