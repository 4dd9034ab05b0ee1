// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include <shardkit/rank/rank.hpp>

#include "job.hpp"

namespace train_gpt {

/// What each rank runs: the same compiled function on every engine.
using RankFunction = std::function<void(sk::Rank& rank)>;

/// Runs on_rank on the ranks of the job's engine and mesh that live in this process.
/// @throws whatever a rank throws
void run_on_engine(const Job& job, const RankFunction& on_rank);

}  // namespace train_gpt
