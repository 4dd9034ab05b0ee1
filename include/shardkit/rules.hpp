// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// What an optimizer of your own needs: rules::RuleOptimizer, over a rule of yours.

#include <shardkit/optim/rule_optimizer.hpp>

#include <shardkit/detail/show_macros.inc>
