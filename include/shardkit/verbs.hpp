// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// The verbs of communicators, for who calls them himself: one header for each. shardkit.hpp includes them, but with
// SHARDKIT_COMPILED, where few files need them.

#include <shardkit/comm/all_gather.hpp>
#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/comm/all_to_all.hpp>
#include <shardkit/comm/barrier.hpp>
#include <shardkit/comm/broadcast.hpp>
#include <shardkit/comm/reduce_scatter.hpp>
#include <shardkit/comm/send_receive.hpp>
#include <shardkit/comm/split.hpp>
#ifdef SHARDKIT_COMPILED
#include <shardkit/backend/host/communicator.hpp>
#endif

#include <shardkit/detail/show_macros.inc>
