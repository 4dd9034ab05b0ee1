// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "options.hpp"
#include "row.hpp"

namespace benchmarks {

/// The gnuplot script of two pictures over the size: bus bandwidth with the copy's as dashed lines of the same
/// colour, and the time of a call. A line for each verb, element type, operation and placement; verbs without data
/// are points nowhere and left out.
std::string plot_script(const Options& options, const std::vector<Row>& rows);

}  // namespace benchmarks
