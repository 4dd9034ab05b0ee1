// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "options.hpp"
#include "plan_summary.hpp"
#include "results.hpp"

namespace train_gpt {

/// The object that --json writes. Of a run that was interrupted, after as many steps as `results` has losses, what
/// only whole runs measure is not there.
std::string json_report(const Options& options, const PlanSummary& plan, const Results& results,
                        std::size_t first_step = 0);

/// The closing lines: planned and measured memory, collectives, first and last loss, sample.
std::string summary(const Options& options, const PlanSummary& plan, const Results& results);

/// A picture of the losses over the steps behind `first_step`, as the content of a .png or .svg file, by way of
/// gnuplot.
/// @throws std::runtime_error when gnuplot fails
std::string plot_losses(const std::string& file, const std::string& title, const std::vector<double>& losses,
                        std::size_t first_step = 0);

}  // namespace train_gpt
