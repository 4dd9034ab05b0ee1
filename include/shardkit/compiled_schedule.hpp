// SPDX-License-Identifier: Apache-2.0
#pragma once

// Recording and following schedules, which schedule.hpp declares: see compiled.hpp.

#ifdef SHARDKIT_COMPILED
#undef SHARDKIT_COMPILED
#endif

#include <shardkit/detail/hide_macros.inc>

#include <shardkit/compiled/define_schedule.hpp>

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

const Schedules& schedules_of(const Object& object, SourceLocation where) {
    return part_of<SchedulesOf>(object, &EngineCore::schedules, "schedules", "compiled_nccl_schedule.hpp", where);
}

}  // namespace SHARDKIT_CHECKED_BUILD

#include <shardkit/detail/show_macros.inc>
