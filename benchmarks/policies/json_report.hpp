// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "../common/machine.hpp"
#include "options.hpp"
#include "prediction.hpp"
#include "row.hpp"

namespace benchmarks::policies {

/// The whole run as one JSON object. `links`: null where nothing was predicted.
std::string json_report(const Options& options, const Machine& machine, const std::string& mpi, const Links* links,
                        const std::vector<Row>& rows, const std::vector<PredictedRow>& predicted);

}  // namespace benchmarks::policies
