// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "summary.hpp"

namespace benchmarks {

/// The copy that stands beside what was timed as its limit.
struct CopyFigure {
    std::uint64_t bytes = 0;  ///< that each rank copies: as many are read and written again
    std::string_view way;     ///< of the yardstick, the fastest: "memcpy"
    Summary time;
};

/// What was measured of one workload.
struct Figure {
    Summary time;                        ///< of one call, over all ranks, in seconds
    std::size_t calls = 0;               ///< back to back in each round
    std::optional<std::uint64_t> wrong;  ///< values, over all ranks and checks; none: not checked
    std::optional<CopyFigure> copy;      ///< none: nothing has to be copied
};

}  // namespace benchmarks
