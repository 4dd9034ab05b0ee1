// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/communicator.hpp>

#include "job.hpp"

namespace train_gpt {

/// What each rank runs: the same compiled function on every engine.
using RankFunction = std::function<void(sk::Rank& rank)>;

/// Runs on_rank on the ranks of the job's engine and mesh that live in this process.
/// @throws whatever a rank throws; InputError for --engine mpi when this program was built without MPI
void run_on_engine(const Job& job, const RankFunction& on_rank);
/// The part of it for ranks that are processes: in run_mpi.cpp.
void run_mpi(const Job& job, const RankFunction& on_rank);
/// What the planner must know of that engine.
sk::engine::Traits mpi_traits();

/// Sets the times after which ranks give up, and where they write their last calls, for either engine.
template <class EngineOptions>
void set_deadline(const Options& options, EngineOptions& engine) {
    if (options.deadline > 0) {
        constexpr double longest = 1e12;  // milliseconds, some thirty years
        engine.timeout = std::chrono::milliseconds(static_cast<long long>(std::min(options.deadline * 1e3, longest)));
        engine.finish_timeout = engine.timeout;
    }
    engine.record = options.record;
    engine.on_late = [](const std::string& text) { std::fprintf(stderr, "train_gpt: %s\n", text.c_str()); };
}

}  // namespace train_gpt
