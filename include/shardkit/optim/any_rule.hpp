// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/core/element.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/optim/group_progress.hpp>
#include <shardkit/optim/option_range.hpp>
#include <shardkit/optim/options.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/state_kind.hpp>
#include <shardkit/optim/update.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/step/precisions.hpp>

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

/// How far the updates of a rule are, without its type.
struct AnyProgress {
    static constexpr std::size_t most_products = 4;

    const RuleFunctions* rule = nullptr;
    ElementType arithmetic = ElementType::fp32;  ///< of the updates
    std::uint64_t steps = 0;
    double products[most_products]{};
};

/// One step's update, as bytes.
struct AnyRuleUpdate {
    static constexpr std::size_t most_bytes = 128;
    static constexpr std::size_t most_states = 4;

    alignas(16) std::byte bytes[most_bytes]{};
};

/// The update of a group's elements with a rule that is a value, to be run in a stream's order: rules::UpdateSpans
/// whose element types are values.
struct AnyUpdateWork {
    const RuleFunctions* rule;
    std::span<const rules::UpdateRange> ranges;
    const AnyRuleUpdate* updates;
    const std::uint32_t* skip;
    std::size_t count;    ///< of elements
    ElementType updated;  ///< the type of `master`
    ElementType gathers;  ///< of `gathered`
    ElementType gradients;
    CodeSizes codes;  ///< where `gathered` are codes
    bool rounds;      ///< masters stochastically
    void* master;
    void* gathered;  ///< null where the master itself is that
    const void* gradient;
    std::uint16_t* rest;  ///< null where that is all there is
    float* scales;
    std::uint64_t seed;
    std::uint64_t state_seed;
    const std::uint64_t* steps;
    const AnyStateSpan* states;
    std::size_t state_count;

    void operator()() const;
};

/// The functions of a rule, to whom knows no more of it.
class RuleFunctions {
  public:
    virtual std::string name(const AnyOptions& options) const = 0;
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
    /// Counts a step, in which the learning rate is `rate`, and makes its update with that rate times `rate_scale`.
    virtual void begin(AnyProgress& progress, const AnyOptions& options, double rate, double rate_scale, double scale,
                       void* update) const = 0;
    /// Makes an update. Returns false where the rule has no loop for its element types.
    virtual bool run(const AnyUpdateWork& work) const = 0;

  protected:
    ~RuleFunctions() = default;
};

inline void AnyUpdateWork::operator()() const {
    if (!rule->run(*this)) {
        throw std::logic_error("a rule has no loop for the element types of a group of its optimizer's model");
    }
}

/// An OptimizerRule that asks its options which one it is.
struct AnyRule {
    using Options = AnyOptions;
    using Progress = AnyProgress;
    template <class>
    using Update = AnyRuleUpdate;
    static constexpr std::array<std::string_view, AnyRuleUpdate::most_states> state_names{"0", "1", "2", "3"};

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
    template <class Chosen>
    static void begin(Progress& progress, const Chosen& given, const Chosen& own, double scale,
                      AnyRuleUpdate& update) {
        const double rate = own.options.learning_rate;
        given.options.rule->begin(progress, given.options, rate, given.learning_rate_scale, scale, update.bytes);
    }
};
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

/// Those of a rule, for groups of these precisions. `Loops` has the update of a range, for the target that the file
/// is compiled for.
template <class Rule, class Loops, class List>
class FunctionsOf;
template <class Rule, class Loops, class... P>
class FunctionsOf<Rule, Loops, Precisions<P...>> final : public RuleFunctions {
    using Options = typename Rule::Options;
    using Progress = typename Rule::Progress;
    using Storage = typename StorageOf<Rule>::type;
    using Counts = std::make_index_sequence<Rule::state_names.size() + 1>;
    template <class A>
    using Update = typename Rule::template Update<A>;

    std::string name(const AnyOptions& options) const override { return name_of_rule<Rule>(options.as<Options>()); }
    StateKind states() const override { return state_kind<Rule>({}); }
    std::string_view state_name(std::size_t state) const override { return Rule::state_names[state]; }
    std::size_t state_count(const AnyOptions& options) const override {
        return Rule::state_count(options.as<Options>());
    }
    bool takes(std::size_t states) const override { return takes_states<Rule>(Options{}, states); }
    void validate(const AnyOptions& options, ElementType arithmetic, SourceLocation where) const override {
        validate_options<Rule>(options.as<Options>(), arithmetic, where);
    }
    AnyOptions options_of(const ParamGroup& group, const AnyOptions& options, SourceLocation where) const override {
        return {this, detail::options_of(group, options.as<Options>(), where)};
    }
    std::vector<std::pair<std::string, std::string>> statements(const AnyOptions& options) const override {
        return statements_of<Rule>(options.as<Options>());
    }

    AnyProgress beginning(ElementType arithmetic) const override {
        const Progress none{};
        AnyProgress any{this, arithmetic, none.steps};
        std::size_t i = 0;
        for_each_product<Rule>(none, [&](auto, double product) { any.products[i++] = product; });
        return any;
    }
    List<GroupProgress::Number> numbers() const override { return progress_numbers<Rule>(Progress{}); }
    template <class A>
    [[gnu::always_inline]] static void make(const Progress& progress, const Options& options, double scale,
                                            void* update) {
        if constexpr ((std::is_same_v<Arithmetic<typename P::Master>, A> || ...)) {
            new (update) Update<A>(Rule::template update<A>(progress, options, scale));
        }
    }
    void begin(AnyProgress& any, const AnyOptions& given, double rate, double rate_scale, double scale,
               void* update) const override {
        Progress progress;
        progress.steps = static_cast<decltype(progress.steps)>(any.steps);
        std::size_t i = 0;
        for_each_product<Rule>(progress, [&](auto, double& product) { product = any.products[i++]; });
        Options options = given.as<Options>();
        options.learning_rate = static_cast<decltype(options.learning_rate)>(rate);
        Rule::advance(progress, options);
        any.steps = progress.steps;
        i = 0;
        for_each_product<Rule>(progress, [&](auto, double product) { any.products[i++] = product; });
        options.learning_rate *= static_cast<decltype(options.learning_rate)>(rate_scale);
        if (any.arithmetic == ElementType::fp64) {
            make<double>(progress, options, scale, update);
        } else {
            make<float>(progress, options, scale, update);
        }
    }

    /// Makes an update if it is of these element types, with N states.
    template <class Master, class Gather, class Gradient, std::size_t N>
    static bool run_if(const AnyUpdateWork& work) {
        using A = Arithmetic<Master>;
        constexpr bool stores = Storage::format == StateFormat::full || std::is_same_v<A, float>;
        if constexpr (stores && rules::UpdateOf<Update<A>, A, N>) {
            if (work.state_count != N || work.updated != element_type_of<Master> ||
                work.gathers != element_type_of<Gather> || work.gradients != element_type_of<Gradient> ||
                work.codes != code_sizes<Gather>) {
                return false;
            }
            const std::span<Master> masters(static_cast<Master*>(work.master), work.count);
            const auto optional = [&]<class T>(T* elements) {
                return std::span<T>(elements, elements == nullptr ? 0 : work.count);
            };
            // Codes are made behind it.
            using Gathered = std::conditional_t<is_coded<Gather>, Master, Gather>;
            auto* const gathered = static_cast<Gather*>(work.gathered);
            Loops::for_each_range(
                work.ranges, *work.skip != 0, masters, gathered, work.scales, [&](const rules::UpdateRange& range) {
                    rules::UpdateSpans<Master, Gathered, Gradient, N, Storage> spans{
                        masters,
                        {},
                        {static_cast<const Gradient*>(work.gradient), work.count},
                        {},
                        {work.seed, work.rounds ? work.steps : nullptr},
                        {work.state_seed, work.steps},
                        optional(work.rest)};
                    if constexpr (!is_coded<Gather>) { spans.gathered = optional(gathered); }
                    std::size_t number = 0;
                    for (auto& state : spans.states) {
                        state =
                            work.states[number++].template as<typename decltype(spans)::StateStorage, A>(work.count);
                    }
                    Loops::update(range, *reinterpret_cast<const Update<A>*>(work.updates[range.update].bytes),
                                  spans);
                });
            return true;
        }
        return false;
    }
    template <class Master, class Gather, class Gradient, std::size_t... N>
    static bool run_with(std::index_sequence<N...> /*counts*/, const AnyUpdateWork& work) {
        return (run_if<Master, Gather, Gradient, N>(work) || ...);
    }
    template <class Precision>
    static bool run_either(const AnyUpdateWork& work) {
        using Gather = typename Precision::Gather;
        using Gradient = typename Precision::Reduction;
        if (run_with<typename Precision::Master, Gather, Gradient>(Counts{}, work)) { return true; }
        if constexpr (can_drop_master<Precision>) { return run_with<Gather, Gather, Gradient>(Counts{}, work); }
        return false;
    }
    bool run(const AnyUpdateWork& work) const override { return (run_either<P>(work) || ...); }
};
template <class Rule, class Loops, class List>
inline constexpr FunctionsOf<Rule, Loops, List> functions_of{};

}  // namespace shardkit::detail
