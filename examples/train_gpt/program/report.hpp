// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "options.hpp"
#include "plan_summary.hpp"
#include "resident_memory.hpp"
#include "results.hpp"

namespace train_gpt {

/// Resident memory just before training and after it.
struct ResidentMemories {
    ResidentMemory before;
    ResidentMemory after;
};

/// The object that --json writes.
std::string json_report(const Options& options, const PlanSummary& plan, const Results& results,
                        const ResidentMemories& resident);
/// The same of a run that was interrupted after as many steps as `results` has losses: what only whole runs measure
/// is not there.
std::string json_report_of_interrupted(const Options& options, const PlanSummary& plan, const Results& results);

/// The closing lines: planned and measured memory, collectives, first and last loss, sample.
std::string summary(const Options& options, const PlanSummary& plan, const Results& results);

}  // namespace train_gpt
