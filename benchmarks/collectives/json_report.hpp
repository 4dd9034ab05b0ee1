// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "../common/machine.hpp"
#include "options.hpp"
#include "row.hpp"

namespace benchmarks {

/// The object that --json writes; docs/benchmarks.md names its members.
std::string json_report(const Options& options, const Machine& machine, const std::string& mpi,
                        const std::vector<Row>& rows);

}  // namespace benchmarks
