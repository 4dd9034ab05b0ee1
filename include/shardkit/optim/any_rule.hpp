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
#include <shardkit/detail/number_text.hpp>
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

/// How far the updates of a rule are, without its type.
struct AnyProgress {
    static constexpr std::size_t most_products = 4;
    struct Product {
        std::string_view name;
        double value;
    };

    std::uint64_t steps = 0;
    std::size_t count = 0;  ///< of products
    Product products[most_products]{};
};

/// The functions of a rule, to whom knows no more of it.
class RuleFunctions {
  public:
    static constexpr std::size_t most_states = 4;
    static constexpr std::size_t most_update_bytes = 128;

    /// Tells a loop from the rule's others.
    template <class Master, class Gather, class Gradient>
    static constexpr std::uint32_t loop_key(std::size_t states) noexcept {
        const auto number = [](ElementType type) { return static_cast<std::uint32_t>(type); };
        return static_cast<std::uint32_t>(states) << 24U | number(element_type_of<Master>) << 16U |
               number(element_type_of<Gather>) << 8U | number(element_type_of<Gradient>);
    }

    virtual std::string name(const AnyOptions& options) const = 0;
    virtual StateKind states() const = 0;
    virtual std::string_view state_name(std::size_t state) const = 0;
    virtual std::size_t state_count(const AnyOptions& options) const = 0;
    /// Whether it has loops with so many states.
    virtual bool takes(std::size_t states) const = 0;
    virtual void validate(const AnyOptions& options, ElementType arithmetic, SourceLocation where) const = 0;
    virtual AnyOptions options_of(const ParamGroup& group, const AnyOptions& options, SourceLocation where) const = 0;
    virtual std::vector<std::pair<std::string, std::string>> statements(const AnyOptions& options) const = 0;
    virtual AnyProgress beginning() const = 0;
    /// Counts a step, in which the learning rate is `rate`, and makes its update with that rate times `rate_scale`.
    /// Returns how many states it takes.
    virtual std::size_t begin(ElementType arithmetic, AnyProgress& progress, const AnyOptions& options, double rate,
                              double rate_scale, double scale, void* update) const = 0;
    /// Runs the loop of a key over a range of rules::UpdateSpans with AnyStates. Returns whether there is one.
    virtual bool run(std::uint32_t loop, const rules::UpdateRange& range, const void* update,
                     const void* spans) const = 0;

  protected:
    ~RuleFunctions() = default;
};

/// One step's update.
template <class A>
struct AnyRuleUpdate {
    const RuleFunctions* rule = nullptr;
    std::size_t states = 0;
    alignas(16) std::byte bytes[RuleFunctions::most_update_bytes]{};

    /// Says to rules::UpdateOf that there may be any number of states.
    template <class V, class... States>
    constexpr void operator()(V& /*parameter*/, States&&... /*states*/) const {}

    template <class Spans>
    void run(const rules::UpdateRange& range, const Spans& spans) const {
        const std::uint32_t loop =
            RuleFunctions::loop_key<typename Spans::Master, typename Spans::Gather, typename Spans::Gradient>(states);
        if (!rule->run(loop, range, bytes, &spans)) {
            throw std::logic_error("a rule has no loop for the element types of a group of its optimizer's model");
        }
    }
};

/// An OptimizerRule that asks its options which one it is.
struct AnyRule {
    using Options = AnyOptions;
    using Progress = AnyProgress;
    using StateStorage = AnyStates;
    template <class A>
    using Update = AnyRuleUpdate<A>;
    static constexpr std::array<std::string_view, RuleFunctions::most_states> state_names{"0", "1", "2", "3"};

    static std::string name_of(const Options& options) { return options.rule->name(options); }
    static std::string_view state_name(const Options& options, std::size_t s) { return options.rule->state_name(s); }
    static std::size_t state_count(const Options& options) { return options.rule->state_count(options); }
    static StateKind state_kind(const Options& options) { return options.rule->states(); }
    static bool takes(const Options& options, std::size_t states) { return options.rule->takes(states); }
    static void validate(const Options& options, ElementType arithmetic, SourceLocation where) {
        options.rule->validate(options, arithmetic, where);
    }
    static auto statements(const Options& options) { return options.rule->statements(options); }
    static Progress beginning(const Options& options) { return options.rule->beginning(); }
    static void for_each_product(auto& progress, const auto& f) {
        for (std::size_t i = 0; i < progress.count; ++i) { f(progress.products[i].name, progress.products[i].value); }
    }
    template <class Chosen, class A>
    static void begin(Progress& progress, const Chosen& given, const Chosen& own, double scale, Update<A>& update) {
        update.rule = given.options.rule;
        update.states = update.rule->begin(element_type_of<A>, progress, given.options, own.options.learning_rate,
                                           given.learning_rate_scale, scale, update.bytes);
    }
};
inline AnyOptions options_of(const ParamGroup& group, const AnyOptions& options, SourceLocation where) {
    return options.rule->options_of(group, options, where);
}

/// Whether a rule is no larger than an AnyRule can be.
template <class Rule>
constexpr bool fits_any_rule() noexcept {
    using Update = typename Rule::template Update<double>;
    return AnyOptions::fits<typename Rule::Options> && sizeof(Update) <= RuleFunctions::most_update_bytes &&
           alignof(Update) <= 16 && Rule::state_names.size() <= RuleFunctions::most_states &&
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
    bool takes(std::size_t states) const override {
        return [states]<std::size_t... N>(std::index_sequence<N...>) {
            return ((states == N && rules::UpdateOf<Update<float>, float, N>) || ...);
        }
        (Counts{});
    }
    void validate(const AnyOptions& options, ElementType arithmetic, SourceLocation where) const override {
        validate_options<Rule>(options.as<Options>(), arithmetic, where);
    }
    AnyOptions options_of(const ParamGroup& group, const AnyOptions& options, SourceLocation where) const override {
        return {this, detail::options_of(group, options.as<Options>(), where)};
    }
    std::vector<std::pair<std::string, std::string>> statements(const AnyOptions& options) const override {
        return statements_of<Rule>(options.as<Options>());
    }

    AnyProgress beginning() const override {
        const Progress none{};
        AnyProgress any{none.steps};
        for_each_product<Rule>(none, [&](std::string_view name, double product) {
            any.products[any.count++] = {name, product};
        });
        return any;
    }
    template <class A>
    static void make(const Progress& progress, const Options& options, double scale, void* update) {
        if constexpr ((std::is_same_v<Arithmetic<typename P::Master>, A> || ...)) {
            new (update) Update<A>(Rule::template update<A>(progress, options, scale));
        }
    }
    std::size_t begin(ElementType arithmetic, AnyProgress& any, const AnyOptions& given, double rate,
                      double rate_scale, double scale, void* update) const override {
        Progress progress;
        progress.steps = static_cast<decltype(progress.steps)>(any.steps);
        std::size_t i = 0;
        for_each_product<Rule>(progress, [&](auto, double& product) { product = any.products[i++].value; });
        Options options = given.as<Options>();
        options.learning_rate = static_cast<decltype(options.learning_rate)>(rate);
        Rule::advance(progress, options);
        any.steps = progress.steps;
        i = 0;
        for_each_product<Rule>(progress, [&](auto, double product) { any.products[i++].value = product; });
        options.learning_rate *= static_cast<decltype(options.learning_rate)>(rate_scale);
        (arithmetic == ElementType::fp64 ? &make<double> : &make<float>)(progress, options, scale, update);
        return Rule::state_count(options);
    }

    template <class Precision, class Updated, std::size_t N>
    static bool run_if(std::uint32_t loop, const rules::UpdateRange& range, const void* update, const void* spans) {
        using A = Arithmetic<Updated>;
        using Gradient = typename Precision::Reduction;
        // Codes are made behind it.
        using Gather = std::conditional_t<Precision::gathers_codes, Updated, typename Precision::Gather>;
        constexpr bool stores = Storage::format == StateFormat::full || std::is_same_v<A, float>;
        if constexpr (stores && rules::UpdateOf<Update<A>, A, N>) {
            if (loop != loop_key<Updated, Gather, Gradient>(N)) { return false; }
            const auto& any =
                *static_cast<const rules::UpdateSpans<Updated, Gather, Gradient, most_states, AnyStates>*>(spans);
            rules::UpdateSpans<Updated, Gather, Gradient, N, Storage> its{
                any.master, any.gathered, any.gradient, {}, any.draws, any.state_draws, any.rest, any.scales};
            std::size_t number = 0;
            for (auto& state : its.states) {
                state = any.states[number++].template as<typename decltype(its)::StateStorage, A>();
            }
            Loops::update(range, *static_cast<const Update<A>*>(update), its);
            return true;
        }
        return false;
    }
    template <class Precision, std::size_t... N>
    static bool run_any(std::index_sequence<N...> /*counts*/, std::uint32_t loop, const rules::UpdateRange& range,
                        const void* update, const void* spans) {
        if ((run_if<Precision, typename Precision::Master, N>(loop, range, update, spans) || ...)) { return true; }
        if constexpr (can_drop_master<Precision>) {
            return (run_if<Precision, typename Precision::Gather, N>(loop, range, update, spans) || ...);
        }
        return false;
    }
    bool run(std::uint32_t loop, const rules::UpdateRange& range, const void* update,
             const void* spans) const override {
        return (run_any<P>(Counts{}, loop, range, update, spans) || ...);
    }
};
template <class Rule, class Loops, class List>
inline constexpr FunctionsOf<Rule, Loops, List> functions_of{};

}  // namespace shardkit::detail
