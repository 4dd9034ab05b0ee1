// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <shardkit/comm/stream.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/spi/placement.hpp>

namespace shardkit::detail {

/// Shows a step's operations as ranges in a profiler, with the names that schedules print: communication, the norm
/// and the updates while the library gives their work to the streams, and a window from its use to its close.
/// Cost:    stores the names once; a step allocates nothing. Without ranges it is the test of a pointer.
class StepRanges {
  public:
    StepRanges(const engine::WorkRanges* ranges, const Schedule& schedule, std::span<const GroupDescription> groups)
        : ranges_(ranges) {
        if (ranges_ == nullptr) { return; }
        std::vector<std::vector<std::size_t>> open(groups.size());  // open windows, by group
        for (std::size_t i = 0; i < schedule.size(); ++i) {
            const schedule::Op& op = schedule[i];
            names_.push_back(op.act == Act::update ? std::string(name(op.act)) : describe(op, groups));
            begun_by_.push_back(i);
            if (op.act == Act::use) { open[op.group].push_back(i); }
            if (op.act == Act::close && !open[op.group].empty()) {
                begun_by_[i] = open[op.group].back();
                open[op.group].pop_back();
            }
        }
        started_.resize(schedule.size());
    }

    void start(std::size_t op) noexcept {
        if (ranges_ != nullptr) { started_[op] = ranges_->start(names_[op].c_str()); }
    }
    /// Ends the range of an operation, if it has one; of a close that of its use.
    void end(std::size_t op) noexcept {
        if (ranges_ == nullptr || !started_[begun_by_[op]]) { return; }
        ranges_->end(*started_[begun_by_[op]]);
        started_[begun_by_[op]].reset();
    }
    /// Ends all ranges that an abandoned step has begun.
    void end_all() noexcept {
        for (std::size_t op = 0; op < started_.size(); ++op) { end(op); }
    }

  private:
    const engine::WorkRanges* ranges_;
    std::vector<std::string> names_;                     // by operation
    std::vector<std::size_t> begun_by_;                  // the use of a close; else the operation itself
    std::vector<std::optional<std::uint64_t>> started_;  // by operation
};

}  // namespace shardkit::detail
