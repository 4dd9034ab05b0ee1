// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/compiled/core.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/element_optimizer.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/state_format.hpp>

// Defines the core's functions of its rules.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

template <class Rule>
using FunctionsOf = shardkit::detail::CoreFunctions<Rule>;
/// Has those of all rules whose states are in a format; instantiated by the source file that compiles them.
template <StateFormat format>
struct CoreRules {
    static constexpr const shardkit::detail::RuleFunctions& (*functions[])(){
        &FunctionsOf<rules::AdamWRule>::in<format>, &FunctionsOf<rules::AmsgradRule>::in<format>,
        &FunctionsOf<rules::SgdRule>::in<format>, &FunctionsOf<rules::LionRule>::in<format>};
};

}  // namespace SHARDKIT_CHECKED_BUILD
