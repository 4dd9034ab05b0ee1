// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// What a rank holds of a group between windows: for optimizers of your own and statistics of single parameters.

#ifdef SHARDKIT_COMPILED
#include <shardkit/compiled/local_shards.hpp>
#else
#include <shardkit/step/local_shards.hpp>
#endif

#include <shardkit/detail/show_macros.inc>
