// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include <shardkit/checkpoint/load.hpp>
#include <shardkit/checkpoint/save.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/step/model.hpp>

#include "../model/initialise.hpp"
#include "job.hpp"

// What the trainers of all engines read and write. Collective over the mesh.

namespace train_gpt {

namespace sk = shardkit;

/// Gives the model its first values, of a new run: those of --init, or random ones.
/// @throws FileError or std::invalid_argument, on every rank, when they cannot be read
template <class Engine, class Precision>
void give_first_values(sk::Context<Engine>& context, const Job& job, sk::Model<Engine, Precision>& model) {
    const Options& options = job.options;
    if (!job.start.folder.empty()) { return; }
    if (options.init.empty()) {
        model.initialize(Initialiser(options.seed, options.model));
    } else {
        sk::checkpoint::load_model(
            context, options.init, model,
            {.names = tensor_names(options.names, options.model, job.start.prefix), .subset = job.start.subset});
    }
}

/// Reads the state that a run is resumed with, where it is.
/// @throws as give_first_values
template <class Engine, class Precision>
void resume_run(sk::Context<Engine>& context, const Job& job, sk::Model<Engine, Precision>& model,
                sk::Optimizer<Engine>& optimizer) {
    if (job.start.folder.empty()) { return; }
    sk::checkpoint::State state{model, optimizer};
    sk::checkpoint::load(context, job.start.folder, state,
                         {.names = tensor_names(job.start.names, job.options.model)});
}

/// Whether the state after so many steps is to be saved. `at_the_end`: the run's, or before it where that is asked
/// for.
inline bool save_is_due(const Options& options, std::size_t steps, bool at_the_end) {
    if (options.save.empty()) { return false; }
    return at_the_end || (options.save_every != 0 && steps % options.save_every == 0);
}
/// Writes it into --save. @returns the step's folder
/// @throws FileError, on every rank, when it cannot be written
template <class Engine, class Precision>
std::string save_run(sk::Context<Engine>& context, const Job& job, std::size_t steps,
                     sk::Model<Engine, Precision>& model, sk::Optimizer<Engine>& optimizer) {
    auto strings = job.identity;
    strings.emplace_back(names_key, program::name_of(name_kinds, job.options.names));
    return sk::checkpoint::save(context, job.options.save, steps, sk::checkpoint::State{model, optimizer},
                                {.names = tensor_names(job.options.names, job.options.model),
                                 .strings = std::move(strings),
                                 .keep = job.options.keep})
        .path;
}

}  // namespace train_gpt
