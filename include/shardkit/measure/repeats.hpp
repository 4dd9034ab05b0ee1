// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace shardkit::measure {

/// Says how often something is called before and while it is timed, and how often its results are checked.
struct Repeats {
    std::size_t warmup = 5;
    std::size_t calls = 0;  ///< back to back in a round; 0: as many as calls_for(bytes) says
    std::size_t rounds = 15;
    std::size_t checks = 1;
    std::size_t least_calls = 1;                           ///< of a round, where `calls` is 0
    std::uint64_t round_bytes = std::uint64_t{64} << 20U;  ///< that the calls of a round add up to

    /// A GPU is many times as fast, and the time of a round holds one launch and one wait besides: as many calls as
    /// nccl-tests makes at least.
    void for_gpu() noexcept {
        least_calls = 20;
        round_bytes = std::uint64_t{8} << 30U;
    }

    /// Returns the calls of a round: as given, or those that add up to round_bytes, from least_calls to 200.
    std::size_t calls_for(std::uint64_t bytes) const noexcept {
        if (calls > 0) { return calls; }
        return static_cast<std::size_t>(std::clamp<std::uint64_t>(round_bytes / (bytes + 1), least_calls, 200));
    }
};

}  // namespace shardkit::measure
