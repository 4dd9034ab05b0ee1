// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/follow/measured_step.hpp>
#include <shardkit/plan/traffic_plan.hpp>

#include "../../common/resident_memory.hpp"

namespace train_gpt {

/// What a rank communicates in a step, by axes and verb.
using Collectives = std::map<std::pair<std::string, std::string>, shardkit::planner::PlannedTraffic>;

/// Multiply-adds of the matrix products of one steady step.
struct Work {
    std::uint64_t layers = 0;           // of one rank, but for attention
    std::uint64_t attention_least = 0;  // of the rank that makes the fewest
    std::uint64_t attention_most = 0;
};

/// What a run leaves behind; rank 0 writes it.
struct Results {
    Results() = default;
    explicit Results(std::size_t steps) : losses(steps) { grad_norms.reserve(steps); }

    std::vector<double> losses;      // per step of this run, mean over the global batch
    std::vector<double> grad_norms;  // per step, before clipping; none with --release on
    double tokens_per_second = 0;
    std::uint64_t peak_bytes_per_rank = 0;          // the largest of all ranks
    std::uint64_t allocations_per_steady_step = 0;  // rounded up
    Work work;
    std::size_t timed_steps = 0;             // the last ones, where they follow a schedule
    shardkit::schedule::MeasuredStep timed;  // one of them, the mean over them and the ranks
    Collectives collectives;                 // of the last step, the mean over the ranks, as the plan has it
    std::string sample;
    std::string trace;                      // of the last step, where asked for and a schedule was followed
    program::ResidentMemory before, after;  // the training, of this process
    int signal = 0;                         // that ended the run before its last step
    std::string saved;                      // the newest step's folder
};

}  // namespace train_gpt
