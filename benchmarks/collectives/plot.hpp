// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "../../examples/common/gnuplot.hpp"
#include "options.hpp"
#include "peer_times.hpp"
#include "row.hpp"

namespace benchmarks {

/// Two pictures over the size: bus bandwidth with the copy's as dashed lines of the same colour, and the time of a
/// call; one legend right of both. A line for each verb, element type, operation and placement, and a thin one for
/// each peer where it has the verb, type and size of a row; verbs without data are points nowhere and left out.
program::Drawing plot_drawing(const Options& options, const std::vector<Row>& rows,
                              const std::vector<PeerTime>& peers);

}  // namespace benchmarks
