// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "../../examples/common/gnuplot.hpp"
#include "options.hpp"
#include "prediction.hpp"
#include "row.hpp"

namespace benchmarks::policies {

/// Measured: bars of a step's time, its computation and its communication for each policy; predicted: the step
/// without overlap over the ranks, a line a policy.
program::Drawing plot_drawing(const Options& options, const std::vector<Row>& rows);
program::Drawing plot_drawing(const Options& options, const std::vector<PredictedRow>& rows);

}  // namespace benchmarks::policies
