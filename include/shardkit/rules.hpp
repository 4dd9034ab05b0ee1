// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// What an optimizer of your own needs: rules::RuleOptimizer, over a rule of yours. Header-only, shardkit.hpp has it
// too.

#ifdef SHARDKIT_COMPILED
#include <shardkit/compiled/rules.hpp>
#else
#include <shardkit/optim/rule_optimizer.hpp>
#endif

#include <shardkit/detail/show_macros.inc>
