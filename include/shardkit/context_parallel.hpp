// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// Attention over sequences that are split over cp.

#include <shardkit/context_parallel/attention.hpp>
#include <shardkit/context_parallel/gather_exchange.hpp>
#include <shardkit/context_parallel/ring_exchange.hpp>

#include <shardkit/detail/show_macros.inc>
