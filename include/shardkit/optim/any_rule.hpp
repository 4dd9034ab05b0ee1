// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/comm/stream.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/codes.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/optim/any_update.hpp>
#include <shardkit/optim/begin_step.hpp>
#include <shardkit/optim/group_progress.hpp>
#include <shardkit/optim/option_range.hpp>
#include <shardkit/optim/options.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/state_kind.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/rank/launch_batch.hpp>
#include <shardkit/sharded/host_conversions.hpp>

// A rule as a value: options, progress and updates are bytes, and who knows their types are functions. So what
// optimizers share is compiled once, and of a rule the loops over elements.

namespace shardkit::detail {

/// Returns what a rule is called; without a name, a text of those of its states.
template <class Rule>
std::string name_of_rule(const typename Rule::Options& options) {
    if constexpr (requires { Rule::name_of(options); }) {
        return Rule::name_of(options);
    } else if constexpr (requires { std::string_view(Rule::name); }) {
        return std::string(Rule::name);
    } else {
        std::string text = "one with";
        for (const std::string_view state : Rule::state_names) { append(text, " ", state); }
        return Rule::state_names.empty() ? "one without states" : text;
    }
}

/// Returns names and texts of what an optimizer states beside its name and each step's learning rate: its other
/// hyper-parameters as far as they have the names of a ParamGroup's, or ranges.
template <class Rule>
std::vector<std::pair<std::string, std::string>> statements_of(const typename Rule::Options& options) {
    if constexpr (requires { Rule::statements(options); }) {
        return Rule::statements(options);
    } else {
        std::vector<std::pair<std::string, std::string>> stated;
        const auto add = [&](std::string_view name, double value) {
            for (const auto& one : stated) {
                if (one.first == name) { return; }
            }
            stated.emplace_back(name, number_text(value));
        };
        if constexpr (requires { static_cast<unsigned>(options.rule); }) {
            stated.emplace_back("momentum rule", concat("number ", static_cast<unsigned>(options.rule)));
        }
        if constexpr (requires { static_cast<unsigned>(options.scale); }) {
            stated.emplace_back("scale", concat("number ", static_cast<unsigned>(options.scale)));
        }
        for_each_own(ParamGroup{}, [&](std::string_view name, const auto& /*given*/, auto member) {
            if constexpr (std::is_invocable_v<decltype(member), const typename Rule::Options&>) {
                add(name, member(options));
            }
        });
        add("weight_decay", options.weight_decay);
        if constexpr (rules::StatesRanges<Rule>) {
            for (const auto& option : Rule::ranges) {
                if (option.name != "learning_rate") { add(option.name, options.*option.member); }
            }
        }
        return stated;
    }
}

class RuleFunctions;

}  // namespace shardkit::detail

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {
struct AnyRule;
}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit::detail {

/// What a rule's updates need of other groups and ranks.
enum class RuleKind : std::uint8_t {
    elements,  ///< nothing: each element is updated for itself
    matrices,  ///< whole matrices
    sums,      ///< sums over whole parameters
};

/// How far the updates of a rule are, without its type.
struct AnyProgress {
    static constexpr std::size_t most_products = 4;

    const RuleFunctions* rule = nullptr;
    ElementType arithmetic = ElementType::fp32;  ///< of the updates
    std::uint64_t steps = 0;
    double products[most_products]{};
};

/// The functions of a rule, to whom knows no more of it.
class RuleFunctions : public UpdateFunctions {
  public:
    virtual std::string name(const AnyOptions& options) const = 0;
    virtual RuleKind kind() const = 0;
    virtual StateKind states() const = 0;
    virtual std::string_view state_name(std::size_t state) const = 0;
    virtual std::size_t state_count(const AnyOptions& options) const = 0;
    /// Whether it has loops with so many states.
    virtual bool takes(std::size_t states) const = 0;
    virtual void validate(const AnyOptions& options, ElementType arithmetic, SourceLocation where) const = 0;
    virtual AnyOptions options_of(const ParamGroup& group, const AnyOptions& options, SourceLocation where) const = 0;
    virtual std::vector<std::pair<std::string, std::string>> statements(const AnyOptions& options) const = 0;
    virtual AnyProgress beginning(ElementType arithmetic) const = 0;
    /// What there is of a progress: its steps, and the products.
    virtual List<GroupProgress::Number> numbers() const = 0;
    /// Counts a step, in which the learning rate is that of `own`, and makes its update.
    virtual void begin(AnyProgress& progress, const ChosenOptions<AnyOptions>& given,
                       const ChosenOptions<AnyOptions>& own, double scale, AnyRuleUpdate& update) const = 0;

    /// Gives a device's stream what `begin` does for some groups, behind `first` unless that is null.
    virtual void begin(const Stream& stream, const BeginStep* first, std::uint64_t groups,
                       const BeginUpdates<AnyRule, float>& work) const = 0;

  protected:
    ~RuleFunctions() = default;
};

}  // namespace shardkit::detail

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// An OptimizerRule that asks its options which one it is.
struct AnyRule {
    using Options = AnyOptions;
    using Progress = AnyProgress;
    template <class>
    using Update = AnyRuleUpdate;

    static std::string name_of(const Options& options) { return options.rule->name(options); }
    static std::string_view state_name(const Options& options, std::size_t s) { return options.rule->state_name(s); }
    static std::size_t state_count(const Options& options) { return options.rule->state_count(options); }
    static StateKind state_kind(const Options& options) { return options.rule->states(); }
    static bool takes(const Options& options, std::size_t states) { return options.rule->takes(states); }
    static void validate(const Options& options, ElementType arithmetic, SourceLocation where) {
        options.rule->validate(options, arithmetic, where);
    }
    static auto statements(const Options& options) { return options.rule->statements(options); }
    static Progress beginning(const Options& options, ElementType arithmetic) {
        return options.rule->beginning(arithmetic);
    }
    static void for_each_product(auto& progress, const auto& f) {
        if (progress.rule == nullptr) { return; }
        const List<GroupProgress::Number> numbers = progress.rule->numbers();
        for (std::size_t i = 1; i < numbers.size(); ++i) { f(numbers[i].name, progress.products[i - 1]); }
    }
    static void begin(Progress& progress, const ChosenOptions<Options>& given, const ChosenOptions<Options>& own,
                      double scale, AnyRuleUpdate& update) {
        given.options.rule->begin(progress, given, own, scale, update);
    }
};

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit::detail {

inline AnyOptions options_of(const ParamGroup& group, const AnyOptions& options, SourceLocation where) {
    return options.rule->options_of(group, options, where);
}

/// Whether a rule is no larger than an AnyRule can be.
template <class Rule>
constexpr bool fits_any_rule() noexcept {
    using Update = typename Rule::template Update<double>;
    return AnyOptions::fits<typename Rule::Options> && sizeof(Update) <= AnyRuleUpdate::most_bytes &&
           alignof(Update) <= 16 && Rule::state_names.size() <= AnyRuleUpdate::most_states &&
           sizeof(typename Rule::Progress) <= 8 * (1 + AnyProgress::most_products);
}

}  // namespace shardkit::detail
