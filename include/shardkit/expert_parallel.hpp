// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// Tokens of a mixture of experts: to the ranks of their experts, and back.

#include <shardkit/expert_parallel/assignment.hpp>
#include <shardkit/expert_parallel/token_exchange.hpp>
#include <shardkit/expert_parallel/token_rows.hpp>

#include <shardkit/detail/show_macros.inc>
