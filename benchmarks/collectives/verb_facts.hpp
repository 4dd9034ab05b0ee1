// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "options.hpp"
#include "with_verb.hpp"

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

}  // namespace benchmarks
