// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "options.hpp"
#include "row.hpp"
#include "verb_facts.hpp"

namespace benchmarks {

/// A row before it is measured.
struct PlannedRow {
    Row row;
    VerbFacts facts;
    std::size_t piece = 0;  ///< elements
};

/// All rows that the options ask for: per verb, element type, operation and size. The size is rounded down to whole
/// pieces, at least one element each; sizes that become equal are measured once.
std::vector<PlannedRow> plan_rows(const Options& options, std::size_t group_size);

}  // namespace benchmarks
