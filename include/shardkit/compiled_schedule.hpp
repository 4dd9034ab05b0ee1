// SPDX-License-Identifier: Apache-2.0
#pragma once

// Recording and following schedules, which schedule.hpp declares: see compiled.hpp.

#ifdef SHARDKIT_COMPILED
#undef SHARDKIT_COMPILED
#endif

#include <shardkit/detail/hide_macros.inc>

#include <shardkit/compiled/define_schedule.hpp>

#include <shardkit/detail/show_macros.inc>
