// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// What a rank holds of a group between windows: for optimizers of your own and statistics of single parameters.

#include <shardkit/step/local_shards.hpp>

#include <shardkit/detail/show_macros.inc>
