// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
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
    /// A call returns when the peers have been shown it. The first rank that waits for what it gives does the work of
    /// all, so that none waits for one that still computes. No thread more, nothing to hand over; copying and summing
    /// takes the time of ranks as before, or that of LaunchOptions::helpers.
    deferred,
    /// Gives each rank two more threads. Costs a hand-over (microseconds a call); worth it where processors are
    /// spare. Where ranks use all of them, these threads wait until the system takes a processor from a rank for
    /// them, and steps may take longer.
    threads
};

/// Says how ranks as threads are run; results do not depend on it.
struct LaunchOptions {
    WaitMode waiting = WaitMode::automatic;
    /// Sets how often the launching thread looks whether all ranks wait for each other.
    std::chrono::milliseconds deadlock_check{50};
    Overlap overlap = Overlap::none;
    /// With Overlap::deferred: so many threads more, for all ranks together, which begin with the work of a call as
    /// soon as every rank has made it; a rank that waits for it takes part. So copying and summing overlaps too. They
    /// take processors that nobody else wants (SCHED_IDLE on Linux): as many as are spare, at most one for each rank,
    /// is a good number.
    std::size_t helpers = 0;
};

}  // namespace shardkit::threads
