// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "../common/machine.hpp"
#include "links.hpp"
#include "options.hpp"
#include "row.hpp"

namespace benchmarks::policies {

/// The lines above the tables: model, machine, method.
std::string table_head(const Options& options, const Machine& machine, const std::string& mpi);
/// The links that predictions use.
std::string links_head(const Links& links);

/// One mesh: the table to choose by, and under it the collectives of each policy.
std::string mesh_table(const std::vector<Row>& rows);

/// Assumptions, then a line for each mesh and policy; nothing in it was measured.
std::string prediction_table(const Options& options, const std::vector<PredictedRow>& rows);

/// The whole run as one JSON object. `links`: null where nothing was predicted.
std::string json_report(const Options& options, const Machine& machine, const std::string& mpi, const Links* links,
                        const std::vector<Row>& rows, const std::vector<PredictedRow>& predicted);

}  // namespace benchmarks::policies
