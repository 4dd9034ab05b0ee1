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

/// What nccl-tests prints of a program before the table of its rows, for a verb; with --of-copy two columns more.
std::string verb_head(VerbKind verb, const Options& options);

/// Microseconds, and 10^9 bytes per second; 'N/A' where nothing was checked, or the verb has no such placement.
std::string table_row(const Row& row, const Options& options);

/// The lines under a verb's rows, as nccl-tests has them: how many values were wrong (0 where none was looked at),
/// and the mean bus bandwidth.
std::string verb_end(VerbKind verb, const std::vector<Row>& rows);

/// The object that --json writes; docs/benchmarks_collectives.md names its members.
std::string json_report(const Options& options, const Machine& machine, const std::string& mpi,
                        const std::vector<Row>& rows);

}  // namespace benchmarks
