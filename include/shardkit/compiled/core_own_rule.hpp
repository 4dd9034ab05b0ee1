// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/compiled/core_model.hpp>
#include <shardkit/compiled/own_rule.hpp>
#include <shardkit/optim/rule_optimizer.hpp>

// The core's optimizer of a rule that is a value: see own_rule.hpp.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

/// One step's update, made and called by the trainer's file.
template <class A>
struct OwnUpdate {
    const OwnRuleTable* table = nullptr;
    alignas(16) std::byte bytes[OwnRuleTable::most_update_bytes]{};

    /// Says to rules::UpdateOf that there may be any number of states.
    template <class V, class... States>
    constexpr void operator()(V& /*parameter*/, States&&... /*states*/) const {}

    template <class Master, class Gather, class Gradient, std::size_t StateCount, class Storage>
    void run(const rules::UpdateSpans<Master, Gather, Gradient, StateCount, Storage>& spans) const {
        for (const OwnRuleTable::Loop& loop : table->loops) {
            if (loop.master == element_type_of<Master> && loop.gather == element_type_of<Gather> &&
                loop.gradient == element_type_of<Gradient> && loop.states == StateCount) {
                return loop.run(bytes, &spans);
            }
        }
        throw std::logic_error(
            "a rule of a trainer's file has no loop for the element types of a group of its model");
    }
};

/// An OptimizerRule that asks its options which one it is.
struct OwnRule : rules::CountsSteps {
    using Options = OwnOptions;
    template <class A>
    using Update = OwnUpdate<A>;
    static constexpr std::array<std::string_view, OwnRuleTable::most_states> state_names{"0", "1", "2", "3"};

    static std::string_view state_name(const Options& options, std::size_t s) {
        return options.table->state_names[s];
    }
    static std::string name_of(const Options& options);
    static std::size_t state_count(const Options& options) { return options.table->state_count(options); }
    template <class A>
    static Update<A> update(const Progress& progress, const Options& options, double scale) {
        Update<A> made{options.table};
        options.table->update(element_type_of<A>, progress.steps, options, scale, made.bytes);
        return made;
    }
};
inline void validate(const OwnOptions& /*options*/, SourceLocation /*where*/) {}  // validate_options does it

}  // namespace SHARDKIT_CHECKED_BUILD

namespace shardkit::detail {

template <>
inline void validate_options<compiled::OwnRule>(const compiled::OwnOptions& options, ElementType arithmetic,
                                                SourceLocation where) {
    options.table->validate(options, arithmetic, where);
}
template <>
inline compiled::OwnOptions options_of(const ParamGroup& group, compiled::OwnOptions options, SourceLocation where) {
    for_each_own(group, [&](std::string_view name, const std::optional<double>& given, auto member) {
        if (!given) { return; }
        if (!has(options.table->members, name)) {
            throw_invalid_argument(where, "ParamGroup: ", name, " is given, which this optimizer does not have");
        }
        member(options) = *given;
    });
    if (group.weight_decay) { options.weight_decay = *group.weight_decay; }
    return options;
}
template <>
inline Statements optimizer_statements<compiled::OwnRule>(const compiled::OwnOptions& options, SourceLocation where) {
    Statements stated{{"optimizer", compiled::OwnRule::name_of(options), where}};
    const auto add = [&](std::string_view name, const std::string& value) {
        stated.push_back({std::string(name), value, where});
    };
    options.table->list_choices(
        options,
        [](void* to, std::string_view name, unsigned number) {
            (*static_cast<decltype(&add)>(to))(name, concat("number ", number));
        },
        const_cast<void*>(static_cast<const void*>(&add)));
    for_each_own(ParamGroup{}, [&](std::string_view name, const auto& /*given*/, auto member) {
        if (has(options.table->members, name)) { add(name, number_text(member(options))); }
    });
    add("weight_decay", number_text(options.weight_decay));
    return stated;
}

}  // namespace shardkit::detail

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

inline std::string OwnRule::name_of(const Options& options) {
    const OwnRuleTable& table = *options.table;
    return shardkit::detail::rule_name(table.name, table.state_names);
}

}  // namespace SHARDKIT_CHECKED_BUILD
