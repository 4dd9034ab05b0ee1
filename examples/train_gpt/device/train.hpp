// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <vector>

#include "../../cuda_trainer/graph.hpp"
#include "../program/adamw.hpp"
#include "../program/dense_model.hpp"
#include "../program/trainer.hpp"
#include "place.hpp"

namespace train_gpt {

/// Trains on one rank, and returns the loss of each step: report(step, loss) is called every options.every steps and
/// at the last one, saved(folder) behind each save, and launched() behind each launch of a graph.
template <class T, class Engine, class Report, class Saved, class Launched>
std::vector<double> train_on_device(sk::Context<Engine>& context, const Job& job, std::size_t workspace_bytes,
                                    const Report& report, const Saved& saved, const Launched& launched) {
    const DeviceProducts<Engine> products(context, workspace_bytes);
    Trainer<DenseModel<Engine, T>, DevicePlace<Engine>> trainer(
        context, job,
        [](const auto& groups, const Options& options) { return make_adamw<sk::StateFormat::full>(groups, options); },
        {context.compute_stream(), products});
    const Options& options = job.options;
    const std::size_t first = job.start.first_step;
    const std::size_t steps = options.steps;
    std::vector<double> losses;
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
        if (step % options.every == 0 || last) {
            const std::size_t known = first + losses.size();
            std::ranges::copy(trainer.losses(known, step + 1 - known), std::back_inserter(losses));
            report(step, losses.back());
        }
        if (save_is_due(options, step + 1, last)) { saved(trainer.save(step + 1)); }
    }
    return losses;
}

}  // namespace train_gpt
