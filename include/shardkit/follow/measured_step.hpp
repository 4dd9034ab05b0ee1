// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <shardkit/schedule/simulate.hpp>

namespace shardkit::schedule {

/// What a lane does during a span.
enum class SpanKind : std::uint8_t {
    computes,      ///< the rank computes, up to the operation's verb or inside it
    waits,         ///< the rank waits for communication, at that verb or after it
    communicates,  ///< the operation's collectives run or wait for other ranks; for a norm its all-reduce
};

/// A span of a step's timeline.
struct StepSpan {
    SpanKind kind{};
    std::size_t op = 0;  ///< index of the operation
    OpTime time;         ///< seconds from the step's start
};

/// The times of a step as a rank measured them. Spans are in the order of the operations. Those that compute or wait
/// follow each other without gaps from 0 to `seconds`. The program's own communication, as of layers that tp splits,
/// counts as computation, and so does the time between two verbs.
struct MeasuredStep {
    std::chrono::steady_clock::time_point began;
    double seconds = 0;        ///< from the Accumulation to the end of the optimizer's step
    double compute = 0;        ///< part of `seconds` in which the rank computes
    double communication = 0;  ///< sum over the operations' collectives, waits for other ranks included
    std::vector<StepSpan> spans;

    /// Returns the seconds in which the rank waits for communication.
    double exposed() const noexcept { return seconds - compute; }
    /// Returns exposed() as a part of all communication; 0 where there is none.
    double exposed_share() const noexcept { return communication > 0 ? exposed() / communication : 0; }
};

}  // namespace shardkit::schedule
