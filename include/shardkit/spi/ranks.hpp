// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

// What a part needs of ranks: numbers of all, what they state to each other, and what a rank keeps (Rank::kept).

#include <shardkit/comm/agreement.hpp>
#include <shardkit/rank/gather_values.hpp>
#include <shardkit/rank/rank_resources.hpp>
