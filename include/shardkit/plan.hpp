// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// Plans of memory, traffic and time, of a model that exists and of descriptions alone; tables of parameters and of
// what a rank has communicated.

#include <shardkit/comm/traffic_log.hpp>
#include <shardkit/plan/time_model.hpp>

#ifdef SHARDKIT_COMPILED
#include <shardkit/compiled/plan.hpp>
#else
#include <shardkit/plan/model_summary.hpp>
#include <shardkit/plan/plan_model.hpp>
#endif

#include <shardkit/detail/show_macros.inc>
