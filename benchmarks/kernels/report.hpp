// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "../common/machine.hpp"
#include "options.hpp"
#include "row.hpp"

namespace benchmarks::kernels {

/// The lines above the table, column names included.
std::string table_head(const Options& options, const Machine& machine);
std::string table_row(const Row& row, const Options& options);

/// The object that --json writes; docs/benchmarks.md names its members.
std::string json_report(const Options& options, const Machine& machine, const std::vector<Row>& rows);

}  // namespace benchmarks::kernels
