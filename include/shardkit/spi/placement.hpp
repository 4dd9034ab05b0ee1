// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where a group's elements lie and what its step communicates: arithmetic without a rank, for plans and schedules.

#include <shardkit/layout/segments.hpp>
#include <shardkit/machine/batch_steps.hpp>
#include <shardkit/machine/group_rows.hpp>
#include <shardkit/machine/step_machine.hpp>
#include <shardkit/memory/slot_pool.hpp>
#include <shardkit/policy/group_mesh.hpp>
#include <shardkit/policy/placement_table.hpp>
#include <shardkit/sharded/group_geometry.hpp>
