// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace shardkit::threads {

/// What a rank does while it waits for its peers.
enum class WaitMode : std::uint8_t {
    automatic,     ///< spin_briefly if every rank (and stream) can have a processor of its own, otherwise block
    spin_briefly,  ///< spin for at most about 100 microseconds, less if that was in vain, then block
    block          ///< sleep at once: best when ranks share processors
};

/// How a rank's gathers and reductions, on its communication and reduction streams, overlap with its other work.
enum class Overlap : std::uint8_t {
    none,  ///< no overlap: both streams run their work in the call
    /// Two more threads for each rank. Handing a call over costs microseconds: worth it if there are spare
    /// processors. If ranks use all processors, these threads wait until the system takes one from a rank, and steps
    /// may take longer.
    threads
};

/// How to run ranks as threads; results do not depend on it.
struct LaunchOptions {
    WaitMode waiting = WaitMode::automatic;
    /// The interval at which the launching thread checks whether all ranks wait for each other.
    std::chrono::milliseconds deadlock_check{50};
    Overlap overlap = Overlap::none;
};

}  // namespace shardkit::threads
