// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/core/validate_number.hpp>

namespace shardkit::rules {

/// An option of an optimizer by name, and what it may be; see OptimizerRule.
template <class Options>
struct OptionRange {
    using Member = double Options::*;  // spelled out in place, nvcc 13.0 adds parentheses that g++ warns of

    std::string_view name;
    Member member;
    NumberRange range;
};

/// A rule that says what its options may be.
template <class R>
concept StatesRanges = requires(const typename R::Options& options, SourceLocation where) {
    options.*R::ranges[0].member;
    shardkit::detail::validate_number(R::name, R::ranges[0].name, 0, R::ranges[0].range, where);
};

}  // namespace shardkit::rules

namespace shardkit::detail {

/// Refuses options that are out of a rule's ranges, or are so in the arithmetic that uses them.
/// @throws std::invalid_argument that names the option, what was given and what was expected
template <rules::StatesRanges Rule>
constexpr void validate_ranges(const typename Rule::Options& options, ElementType arithmetic, SourceLocation where) {
    for (const auto& option : Rule::ranges) {
        validate_number(Rule::name, option.name, options.*option.member, option.range, where, arithmetic);
    }
    // Nor may what any rule makes of them.
    validate_number(Rule::name, "learning_rate * weight_decay", options.learning_rate * options.weight_decay,
                    rules::not_negative, where, arithmetic);
    constexpr rules::NumberRange step{0, 1e30, "at most 1e30, as steps are multiples of it"};
    validate_number(Rule::name, "learning_rate", options.learning_rate, step, where);
}

/// The same, and what a rule's own `validate` says of options together.
template <class Rule>
void validate_options(const typename Rule::Options& options, ElementType arithmetic, SourceLocation where) {
    if constexpr (rules::StatesRanges<Rule>) { validate_ranges<Rule>(options, arithmetic, where); }
    if constexpr (requires { validate(options, where); }) { validate(options, where); }
}

}  // namespace shardkit::detail
