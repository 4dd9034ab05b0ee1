// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// A training step as a value, which can be stated, recorded, checked, simulated, improved and followed.
#include <shardkit/follow/follow.hpp>
#include <shardkit/follow/record.hpp>
#include <shardkit/follow/trace.hpp>
#include <shardkit/schedule/batch_costs.hpp>
#include <shardkit/schedule/check.hpp>
#include <shardkit/schedule/dry_step.hpp>
#include <shardkit/schedule/passes.hpp>
#include <shardkit/schedule/peak.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/schedule_table.hpp>
#include <shardkit/schedule/scheduled_plan.hpp>
#include <shardkit/schedule/simulate.hpp>

#include <shardkit/detail/show_macros.inc>
