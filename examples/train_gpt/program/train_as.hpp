// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "run_on_engine.hpp"
#include "train_on_rank.hpp"

namespace train_gpt {

template <class T, class Gather>
Results train_as(const Job& job) {
    Results results(job.options.steps - job.start.first_step);
    run_on_engine(job, [&](sk::Context<>& rank) { train_on_rank<T, Gather>(rank, job, results); });
    return results;
}

}  // namespace train_gpt
