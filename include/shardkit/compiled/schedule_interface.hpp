// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/compiled/interface.hpp>
#include <shardkit/core/counts.hpp>
#include <shardkit/follow/measured_step.hpp>
#include <shardkit/schedule/schedule.hpp>

// What a trainer's file calls to record and follow schedules in the compiled form; compiled_schedule.hpp defines it.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

/// Of one step.
class Recording : public Object {
  public:
    /// Ends it.
    virtual Schedule schedule(SourceLocation where) = 0;
};
class Following : public Object {
  public:
    virtual ByteCount arena_bytes(SourceLocation where) const = 0;
    virtual std::size_t schedules(SourceLocation where) const = 0;
    virtual std::size_t choose(std::size_t schedule, SourceLocation where) = 0;
    virtual void measure(SourceLocation where) = 0;
    virtual schedule::MeasuredStep measured(SourceLocation where) const = 0;
};

Recording* begin_record(const Model& groups, SourceLocation where);
Following* follow(const Model& groups, std::span<const Schedule> schedules, SourceLocation where);

}  // namespace SHARDKIT_CHECKED_BUILD
