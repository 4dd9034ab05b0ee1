// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "../common/machine.hpp"
#include "options.hpp"
#include "rows.hpp"

namespace benchmarks {

/// The lines above the table: what ran, on what, and how it was timed.
std::string table_head(const Options& options, const Machine& machine, const std::string& mpi);

/// The column names under a line with the verb.
std::string verb_head(VerbKind verb);

/// Microseconds, and 10^9 bytes per second; '-' where there is nothing, 'N/A' where nothing was checked.
std::string table_row(const Row& row, const Options& options);

/// The lines under the table, as nccl-tests has them: how many values were wrong, and for each verb the mean bus
/// bandwidth of its rows; only what was measured.
std::string table_end(const std::vector<Row>& rows);

/// The object that --json writes; docs/benchmarks_collectives.md names its members.
std::string json_report(const Options& options, const Machine& machine, const std::string& mpi,
                        const std::vector<Row>& rows);

}  // namespace benchmarks
