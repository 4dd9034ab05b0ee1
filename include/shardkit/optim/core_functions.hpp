// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/kernels/state_storage.hpp>
#include <shardkit/optim/element_optimizer.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/policy/state_format.hpp>
#include <shardkit/verbs/communicator.hpp>

namespace shardkit::detail SHARDKIT_FACE {

template <class Rule>
template <StateFormat Format>
const RuleFunctions& CoreFunctions<Rule>::in() {
    return functions_of<rules::RuleIn<Rule, Format>, host::AnyKernels::Loops>;
}

}  // namespace shardkit::detail SHARDKIT_FACE
