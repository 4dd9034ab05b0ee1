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

  protected:
    using Object::Object;
};
class Following : public Object {
  public:
    virtual ByteCount arena_bytes(SourceLocation where) const = 0;
    virtual std::size_t schedules(SourceLocation where) const = 0;
    virtual std::size_t choose(std::size_t schedule, SourceLocation where) = 0;
    virtual void measure(SourceLocation where) = 0;
    virtual schedule::MeasuredStep measured(SourceLocation where) const = 0;

  protected:
    using Object::Object;
};

/// Records and follows on an engine.
class Schedules {
  public:
    virtual Recording* begin_record(const Groups& groups, SourceLocation where) const = 0;
    virtual Following* follow(const Groups& groups, std::span<const Schedule> schedules,
                              SourceLocation where) const = 0;

  protected:
    ~Schedules() = default;
};
/// Returns those of an object's engine.
/// @throws UsageError when the program has none
const Schedules& schedules_of(const Object& object, SourceLocation where);

}  // namespace SHARDKIT_CHECKED_BUILD
