// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include <shardkit/core/error.hpp>
#include <shardkit/core/json_string.hpp>
#include <shardkit/follow/measured_step.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/simulate.hpp>

namespace shardkit::detail {

/// Writes events in the Trace Event Format: a process for each rank with a track for each lane.
class TraceText {
  public:
    void add_process(std::size_t rank) {
        add(concat(R"({"name": "process_name", "ph": "M", "pid": )", rank, R"(, "args": {"name": "rank )", rank,
                   "\"}}"));
    }
    void add_lanes(std::size_t rank) {
        for (const schedule::Lane lane : {schedule::Lane::compute, schedule::Lane::gather, schedule::Lane::reduce}) {
            add(concat(R"({"name": "thread_name", "ph": "M", "pid": )", rank, R"(, "tid": )", static_cast<int>(lane),
                       R"(, "args": {"name": ")", name(lane), "\"}}"));
        }
    }
    /// Adds a slice; none if it takes no time.
    void add_slice(std::string_view text, std::size_t rank, schedule::Lane lane, const schedule::OpTime& time) {
        if (time.end <= time.begin) { return; }
        std::array<char, 120> place{};
        std::snprintf(place.data(), place.size(), R"("ph": "X", "pid": %zu, "tid": %d, "ts": %.3f, "dur": %.3f})",
                      rank, static_cast<int>(lane), time.begin * 1e6, (time.end - time.begin) * 1e6);
        add(concat("{\"name\": ", json_string(text), ", ", place.data()));
    }
    std::string finish() const { return concat("{\"traceEvents\": [\n", events_, "\n]}\n"); }

  private:
    void add(const std::string& event) {
        if (!events_.empty()) { events_ += ",\n"; }
        events_ += event;
    }
    std::string events_;
};

}  // namespace shardkit::detail

namespace shardkit::schedule {

/// Returns a simulated step for chrome://tracing or Perfetto: a track for each lane, a slice for each operation that
/// takes time.
/// Units:   microseconds from the step's start
/// @throws  std::invalid_argument when the times belong to another schedule
/// Source:  Trace Event Format, complete events ("ph": "X")
inline std::string trace(const Schedule& schedule, std::span<const planner::GroupDescription> groups,
                         const StepTimes& times, SourceLocation where = SourceLocation::current()) {
    require_argument(times.ops.size() == schedule.size(), where, "schedule::trace: times of ", times.ops.size(),
                     " operations given, expected of ", schedule.size());
    detail::TraceText trace;
    trace.add_lanes(0);
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        trace.add_slice(describe(schedule[i], groups), 0, schedule[i].lane, times.ops[i]);
    }
    return trace.finish();
}

/// Returns measured steps of one schedule, by rank: a process for each rank with a track for each lane. The compute
/// lane shows for which operation the rank computed or waited; a norm's all-reduce is in the lane of the reductions.
/// Units:   microseconds from the first rank's start
/// @throws  std::invalid_argument when a step has an operation that the schedule does not have
/// Source:  Trace Event Format, complete events ("ph": "X")
inline std::string trace(const Schedule& schedule, std::span<const planner::GroupDescription> groups,
                         std::span<const MeasuredStep> ranks, SourceLocation where = SourceLocation::current()) {
    detail::TraceText trace;
    Lane sums = Lane::reduce;
    for (const Op& op : schedule.ops()) {
        if (op.act == Act::reduce) { sums = op.lane; }
    }
    auto first = ranks.empty() ? std::chrono::steady_clock::time_point() : ranks.front().began;
    for (const MeasuredStep& step : ranks) { first = std::min(first, step.began); }
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        trace.add_process(rank);
        trace.add_lanes(rank);
        const double later = std::chrono::duration<double>(ranks[rank].began - first).count();
        for (const StepSpan& span : ranks[rank].spans) {
            require_argument(span.op < schedule.size(), where, "schedule::trace: rank ", rank,
                             " has a time of operation ", span.op, ", expected below ", schedule.size());
            const Op& op = schedule[span.op];
            const std::string text = describe(op, groups);
            const bool communicates = span.kind == SpanKind::communicates;
            const Lane lane = !communicates ? Lane::compute : op.act == Act::norm ? sums : op.lane;
            trace.add_slice(span.kind == SpanKind::waits ? "wait at " + text : text, rank, lane,
                            {later + span.time.begin, later + span.time.end});
        }
    }
    return trace.finish();
}

}  // namespace shardkit::schedule
