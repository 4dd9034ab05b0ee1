// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <shardkit/schedule/simulate.hpp>

namespace shardkit {

/// What a lane does for a while.
enum class SpanKind : std::uint8_t {
    computes,      ///< the rank, up to the verb that the operation is, or inside it
    waits,         ///< the rank, at that verb or behind it, for communication
    communicates,  ///< the operation's collectives run, or wait for other ranks; of a norm its all-reduce
};

/// A piece of a step's timeline.
struct StepSpan {
    SpanKind kind{};
    std::size_t op = 0;  ///< number of the operation
    OpTime time;         ///< seconds from the step's start
};

/// A step as a rank has measured it. Spans are in the order of the operations. Those that compute or wait follow each
/// other without a gap from 0 to `seconds`. What the program itself communicates, as layers that tp splits do, counts
/// as computation, and so does what it does between two verbs.
struct MeasuredStep {
    std::chrono::steady_clock::time_point began;
    double seconds = 0;        ///< from the Accumulation to the end of the optimizer's step
    double compute = 0;        ///< of them the rank computes
    double communication = 0;  ///< that the operations' collectives take together, waits for other ranks included
    std::vector<StepSpan> spans;

    /// Seconds for which the rank waits for communication.
    double exposed() const noexcept { return seconds - compute; }
    /// Of all communication; 0 where there is none.
    double exposed_share() const noexcept { return communication > 0 ? exposed() / communication : 0; }
};

}  // namespace shardkit
