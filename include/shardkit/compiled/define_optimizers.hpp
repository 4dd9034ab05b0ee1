// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/host/range_updates.hpp>
#include <shardkit/compiled/core.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/optimizer_frame.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/optim/sgd.hpp>

// Defines the core's functions of its rules.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

template <class Rule, StateFormat format>
const shardkit::detail::RuleFunctions& rule_functions() {
    return shardkit::detail::functions_of<rules::RuleIn<Rule, format>, host::detail::RangeUpdates>;
}

/// Has those of all rules whose states are in a format; instantiated by the source file that compiles them.
template <StateFormat format>
struct CoreRules {
    static constexpr const shardkit::detail::RuleFunctions& (*functions[])(){
        &rule_functions<rules::AdamWRule, format>, &rule_functions<rules::AmsgradRule, format>,
        &rule_functions<rules::SgdRule, format>, &rule_functions<rules::LionRule, format>};
};

}  // namespace SHARDKIT_CHECKED_BUILD
