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
    std::uint64_t step_bytes = 0;  ///< between sizes, in place of the factor; 0: not given
    bool pin = false;
    std::string json;  ///< file name; empty: not asked for

    std::uint64_t size_after(std::uint64_t bytes) const noexcept {
        return step_bytes > 0 ? bytes + step_bytes : bytes * step_factor;
    }
    std::uint64_t largest_size() const noexcept {
        std::uint64_t bytes = min_bytes;
        while (size_after(bytes) <= max_bytes) { bytes = size_after(bytes); }
        return bytes;
    }
};

}  // namespace benchmarks
