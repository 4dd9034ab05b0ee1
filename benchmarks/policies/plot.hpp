// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "options.hpp"
#include "prediction.hpp"
#include "row.hpp"

namespace benchmarks::policies {

/// A gnuplot script: measured, bars of a step's time, its computation and its communication for each policy;
/// predicted, the step without overlap over the ranks, a line a policy.
std::string plot_script(const Options& options, const std::vector<Row>& rows);
std::string plot_script(const Options& options, const std::vector<PredictedRow>& rows);

}  // namespace benchmarks::policies
