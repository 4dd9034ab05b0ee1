// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "run_on_engine.hpp"
#include "train_on_rank.hpp"

namespace train_gpt {

/// Trains in T on the job's engine. `Gather`: what gathers of the blocks carry.
template <class T, class Gather = T>
Results train_in(const Job& job) {
    Results results(job.options.steps - job.start.first_step);
    run_on_engine(job, [&](sk::Context<>& rank) { train_on_rank<T, Gather>(rank, job, results); });
    return results;
}

template <class T>
Results train_as(const Job& job) {
    return train_in<T>(job);
}

}  // namespace train_gpt
