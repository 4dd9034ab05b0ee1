// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// Plans of memory, traffic and time, of a model that exists and of descriptions alone; tables of parameters and of
// what a rank has communicated.

#include <shardkit/comm/traffic_log.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/plan/time_model.hpp>

#include <shardkit/detail/show_macros.inc>
