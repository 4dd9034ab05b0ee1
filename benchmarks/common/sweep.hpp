// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "repeats.hpp"

namespace benchmarks {

/// What every program that times calls over sizes is told.
struct Sweep : Repeats {
    std::uint64_t min_bytes = 0;
    std::uint64_t max_bytes = 0;
    std::uint64_t step_factor = 2;
    bool pin = false;
    std::string json;  ///< file name; empty: not asked for
};

}  // namespace benchmarks
