// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// A moving average of a model's weights.

#ifdef SHARDKIT_COMPILED
#include <shardkit/compiled/moving_average.hpp>
#else
#include <shardkit/average/moving_average.hpp>
#endif

#include <shardkit/detail/show_macros.inc>
