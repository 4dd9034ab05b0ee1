// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace shardkit::threads {

/// Says what a rank does while it waits for its peers.
enum class WaitMode : std::uint8_t {
    automatic,     ///< spin_briefly when every rank (and stream) can have a processor of its own, block otherwise
    spin_briefly,  ///< at most some 100 microseconds of spinning, fewer where that was in vain, then block
    block          ///< sleep at once: right when ranks share processors
};

/// Says how a rank's gathers and reductions, on its communication and reduction stream, run beside its other work.
enum class Overlap : std::uint8_t {
    none,  ///< they do not: both streams run in the call
    /// Two more threads for each rank. Costs a hand-over (microseconds a call); worth it where processors are spare.
    /// Where ranks use all of them, these threads wait until the system takes a processor from a rank for them, and
    /// steps may take longer.
    threads
};

/// Says how ranks as threads are run; results do not depend on it.
struct LaunchOptions {
    WaitMode waiting = WaitMode::automatic;
    /// Sets how often the launching thread looks whether all ranks wait for each other.
    std::chrono::milliseconds deadlock_check{50};
    Overlap overlap = Overlap::none;
};

}  // namespace shardkit::threads
