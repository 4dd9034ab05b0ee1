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
struct MeasuredStep : StepSeconds {
    std::chrono::steady_clock::time_point began;
    std::vector<StepSpan> spans;
};

}  // namespace shardkit::schedule
