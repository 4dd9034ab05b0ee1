// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace benchmarks {

/// How often something is called before and while it is timed, and how often its results are checked.
struct Repeats {
    std::size_t warmup = 5;
    std::size_t calls = 0;  ///< back to back in a round; 0: as many as calls_for(bytes) says
    std::size_t rounds = 15;
    std::size_t checks = 1;

    /// Calls of a round: as given, or those that add up to 64 MiB, at least 1 and at most 200.
    std::size_t calls_for(std::uint64_t bytes) const noexcept {
        if (calls > 0) { return calls; }
        const std::uint64_t many = (std::uint64_t{64} << 20U) / (bytes + 1);
        return many < 1 ? 1 : many > 200 ? 200 : static_cast<std::size_t>(many);
    }
};

}  // namespace benchmarks
