// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>

#include <shardkit/core/error.hpp>
#include <shardkit/core/json_string.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/simulate.hpp>

namespace shardkit {

/// A simulated step for chrome://tracing or Perfetto: a track for each lane, a slice for each operation that takes
/// time.
/// Units:   microseconds from the step's start
/// @throws  std::invalid_argument when the times are of another schedule
/// Source:  Trace Event Format, complete events ("ph": "X")
inline std::string schedule_trace(const Schedule& schedule, std::span<const GroupDescription> groups,
                                  const StepTimes& times, SourceLocation where = SourceLocation::current()) {
    if (times.ops.size() != schedule.size()) {
        throw_invalid_argument(where, "schedule_trace: times of ", times.ops.size(),
                               " operations given, expected of ", schedule.size());
    }
    std::string events;
    for (const Lane lane : {Lane::compute, Lane::gather, Lane::reduce}) {
        events += detail::concat(R"({"name": "thread_name", "ph": "M", "pid": 0, "tid": )", static_cast<int>(lane),
                                 R"(, "args": {"name": ")", name(lane), "\"}},\n");
    }
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        const OpTime& time = times.ops[i];
        if (time.end <= time.begin) { continue; }
        std::array<char, 120> place{};
        std::snprintf(place.data(), place.size(), R"("ph": "X", "pid": 0, "tid": %d, "ts": %.3f, "dur": %.3f},)",
                      static_cast<int>(schedule[i].lane), time.begin * 1e6, (time.end - time.begin) * 1e6);
        events += detail::concat("{\"name\": ", detail::json_string(describe(schedule[i], groups)), ", ",
                                 place.data(), "\n");
    }
    events.resize(events.size() - 2);  // the last comma
    return detail::concat("{\"traceEvents\": [\n", events, "\n]}\n");
}

}  // namespace shardkit
