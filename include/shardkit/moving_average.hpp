// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// A moving average of a model's weights.

#include <shardkit/average/moving_average.hpp>

#include <shardkit/detail/show_macros.inc>
