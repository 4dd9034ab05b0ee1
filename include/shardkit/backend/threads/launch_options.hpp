// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

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

    /// The longest time that a rank waits in a call for ranks that have not entered it, and in a call that all have
    /// entered. When it has passed, every rank gets an error that names those that are missing. A rank that computes
    /// for longer is one of them. A thread cannot be ended: a rank that never comes back is named, but `run` does not
    /// return. Rank::deadline sets another time for a phase, in place of both.
    std::chrono::milliseconds timeout = std::chrono::milliseconds::max();
    std::chrono::milliseconds finish_timeout = std::chrono::milliseconds::max();
    /// Called with a text that names the missing ranks when half of such a time has passed, and when all of it has;
    /// in the launching thread. It must not throw.
    std::function<void(const std::string& text)> on_late{};
    /// Where the ranks' last calls are written, "PREFIX-rank-0.json" and so on: when a rank fails, when a time above
    /// has passed, and on SIGUSR1, unless the program handles it. Empty: nowhere.
    std::string record{};
};

}  // namespace shardkit::threads
