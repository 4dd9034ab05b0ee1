// SPDX-License-Identifier: Apache-2.0
#pragma once

// Recording and following schedules, which schedule.hpp declares: see compiled.hpp.

#include <shardkit/compiled/part_begins.inc>

#include <shardkit/follow/follow.hpp>
#include <shardkit/follow/record.hpp>

#include <shardkit/detail/show_macros.inc>
