// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include <shardkit/rank/rank.hpp>

#include "../allocation_counter.hpp"
#include "../model/host_place.hpp"
#include "optimizer.hpp"
#include "rank_steps.hpp"
#include "run_on_engine.hpp"

namespace train_gpt {

/// Trains on one rank; rank 0 writes `results`, whose vectors have their sizes already.
template <class T>
void train_on_rank(sk::Rank& rank, const Job& job, Results& results) {
    const CountedAllocations counted;
    const bool reports = rank.rank() == 0;
    RankSteps<T, HostPlace> steps(
        rank, job, reports ? &results : nullptr, &counted,
        [](const auto& groups, const Options& options) { return make_optimizer(groups, options); });
    const bool completed = steps.run([](auto& trainer) { trainer.step(); });
    if (job.options.sample > 0 && completed) {
        std::string text = steps.trainer().sample(job.options.sample);
        if (reports) { results.sample = std::move(text); }
    }
}

/// As job.hpp declares it.
template <class T>
Results train_as(const Job& job) {
    Results results(job.options.steps - job.start.first_step);
    run_on_engine(job, [&](sk::Rank& rank) { train_on_rank<T>(rank, job, results); });
    return results;
}

}  // namespace train_gpt
