// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// What an optimizer of your own needs, over a rule of yours: rules::RuleOptimizer for elements, MatrixOptimizer for
// whole matrices, FactoredOptimizer with sums over whole parameters.

#include <shardkit/factored/factored_optimizer.hpp>
#include <shardkit/muon/matrix_optimizer.hpp>
#include <shardkit/muon/newton_schulz.hpp>
#include <shardkit/optim/rule_optimizer.hpp>

#include <shardkit/detail/show_macros.inc>
