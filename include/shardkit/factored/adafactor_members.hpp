// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <utility>
#include <vector>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/factored/adafactor.hpp>
#include <shardkit/factored/adafactor_rule.hpp>
#include <shardkit/factored/factored_functions.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/step/model.hpp>

// Defines the members of Adafactor.

namespace shardkit SHARDKIT_FACE {

SHARDKIT_CORE_INLINE Adafactor::Adafactor(const Model& model, const AdafactorOptions& options,
                                          std::vector<ParamGroup> param_groups, SourceLocation where)
    : RuleOptimizer(model, {&detail::functions_of<rules::AdafactorRule, host::AnyKernels::Loops>, options},
                    detail::factored_functions_of<rules::AdafactorRule>, std::move(param_groups), where) {}

}  // namespace SHARDKIT_FACE
