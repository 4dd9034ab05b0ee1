// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "options.hpp"
#include "row.hpp"
#include "verbs.hpp"

namespace benchmarks {

/// What a verb's struct says, for a group of a number of ranks.
struct VerbFacts {
    bool out_of_place;
    bool in_place;
    bool reduces;
    bool has_root;
    bool moves_data;
    std::size_t pieces;
    double bus_factor;
    double copied_out_of_place;
    double copied_in_place;

    static VerbFacts of(VerbKind verb, std::size_t group_size) {
        return with_verb(verb, [&]<class V>(V) {
            const auto ranks = static_cast<double>(group_size);
            return VerbFacts{V::out_of_place,
                             V::in_place,
                             V::reduces,
                             V::has_root,
                             V::moves_data,
                             V::pieces(group_size),
                             V::bus_factor(ranks),
                             V::copied(Placement::out_of_place, ranks),
                             V::copied(Placement::in_place, ranks)};
        });
    }
    bool has(Placement placement) const noexcept {
        return placement == Placement::in_place ? in_place : out_of_place;
    }
    double copied(Placement placement) const noexcept {
        return placement == Placement::in_place ? copied_in_place : copied_out_of_place;
    }
};

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
