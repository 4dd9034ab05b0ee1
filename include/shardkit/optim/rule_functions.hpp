// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/comm/stream.hpp>
#include <shardkit/core/codes.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/kernels/state_storage.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/optim/any_rule.hpp>
#include <shardkit/optim/begin_step.hpp>
#include <shardkit/optim/factored_rule.hpp>
#include <shardkit/optim/group_progress.hpp>
#include <shardkit/optim/matrix_rule.hpp>
#include <shardkit/optim/option_range.hpp>
#include <shardkit/optim/options.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/state_kind.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/rank/launch_batch.hpp>

// What a rule that is a value does, by its type: loops on the host, kernels on a device.

namespace shardkit::detail {

/// Returns what a rule is called; without a name, a text of those of its states.
template <class Rule>
std::string name_of_rule() {
    if constexpr (requires { std::string_view(Rule::name); }) {
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

template <auto Member, class Progress>
constexpr double& product_of(Progress& progress) noexcept {
    return progress.*Member;
}
/// What begins updates of a `Rule`, where kernels run.
template <class Rule>
struct BeginsAs {
    static constexpr void begin(AnyProgress& any, const ChosenOptions& given, const ChosenOptions& own, double scale,
                                AnyRuleUpdate& update) {
        typename Rule::Progress progress;
        progress.steps = static_cast<decltype(progress.steps)>(any.steps);
        for_each_product(progress, any, [](double& its, double& as_any) { its = as_any; });
        auto options = given.options.as<typename Rule::Options>();
        using Rate = decltype(options.learning_rate);
        options.learning_rate = static_cast<Rate>(own.options.learning_rate);
        Rule::advance(progress, options);
        any.steps = progress.steps;
        for_each_product(progress, any, [](double& its, double& as_any) { as_any = its; });
        options.learning_rate *= static_cast<Rate>(given.learning_rate_scale);
        if (any.arithmetic == ElementType::fp64) {
            make<double>(progress, options, scale, update);
        } else {
            make<float>(progress, options, scale, update);
        }
    }

  private:
    template <class Progress, class F>
    static constexpr void for_each_product(Progress& progress, AnyProgress& any, const F& f) {
        if constexpr (requires { Rule::products; }) {
            [&]<std::size_t... P>(std::index_sequence<P...>) {
                (f(product_of<Rule::products[P].member>(progress), any.products[P]), ...);
            }
            (std::make_index_sequence<Rule::products.size()>{});
        }
    }
    template <class Of>
    static constexpr void make(const typename Rule::Progress& progress, const typename Rule::Options& options,
                               double scale, AnyRuleUpdate& update) {
        const typename Rule::template Update<Of> made = Rule::template update<Of>(progress, options, scale);
        std::memcpy(update.bytes, &made, sizeof made);
    }
};
/// Begins updates of a rule on a device, of a step of any precisions.
template <class Rule>
using BeginUpdatesAs = BeginUpdates<BeginsAs<Rule>>;

/// Calls f(std::integral_constant) of a number of states, if it is one that an update takes. Returns whether it is.
template <class Update, class A, std::size_t... N, class F>
bool with_state_count(std::index_sequence<N...> /*counts*/, std::size_t count, const F& f) {
    const auto call_if = [&]<std::size_t Count>(std::integral_constant<std::size_t, Count> number) {
        if constexpr (rules::UpdateOf<Update, A, Count>) {
            if (count == Count) { f(number); }
            return count == Count;
        }
        return false;
    };
    return (call_if(std::integral_constant<std::size_t, N>{}) || ...);
}
template <class Rule>
using StateCounts = std::make_index_sequence<Rule::state_names.size() + 1>;
/// Whether several groups are updated in one launch: with an optimizer of elements.
template <class Rule>
inline constexpr bool updates_in_batches = updates_alone<Rule>&& requires {
    typename Rule::Options;
};

}  // namespace shardkit::detail

namespace shardkit::engine {

/// Updates of groups of these element types, an UpdateTypes, with a rule.
template <class Rule, class Types>
struct RuleUpdates {
    shardkit::detail::DeviceUpdates given;

    template <class Kernels, class Stream>
    void on(const Stream& stream) const {
        namespace of = shardkit::detail;
        using Update = of::KnownRuleUpdate<typename Rule::template Update<typename Types::A>>;
        const of::AnyUpdateWork& work = *given.work;
        const auto give = [&](auto n) {
            const auto spans = work.template spans<Types, n, typename of::StorageOf<Rule>::type>();
            const auto* const updates = reinterpret_cast<const Update*>(work.updates);
            if constexpr (of::updates_in_batches<Rule>) {
                using Entry = decltype(Kernels::update_entry(work.ranges, updates, work.skip, spans));
                if (given.entry != nullptr) {
                    Entry made = Kernels::update_entry(work.ranges, updates, work.skip, spans);
                    made.end += given.entry->end;
                    given.entry->end = made.end;
                    const auto* const bytes = reinterpret_cast<const std::byte*>(&made);
                    given.entry->bytes.append(bytes, bytes + sizeof made);
                    return;
                }
                if (!given.entries.entries.empty()) {
                    const auto& all = given.entries.entries;
                    return Kernels::update_batch(
                        stream,
                        LaunchBatch<Entry>{{reinterpret_cast<const Entry*>(all.data()), all.size() / sizeof(Entry)},
                                           given.entries.begin,
                                           given.entries.end});
                }
            }
            Kernels::update(stream, work.ranges, updates, work.skip, spans);
        };
        if (!of::with_state_count<Update, typename Types::A>(of::StateCounts<Rule>{}, work.state_count, give)) {
            of::refuse_update();
        }
    }
};

template <class Kernel>
struct DeviceLaunchOf;  // see backend/host/device_kernels.hpp
template <class Kernel>
struct DeviceLaunchIs;

}  // namespace shardkit::engine

namespace shardkit::detail {

/// What launches a rule's updates of groups of some element types, in a list of all that the program's files can
/// launch, which they fill before main.
template <class Rule>
struct RuleLaunch {
    bool (*is_of)(const AnyUpdateWork& work);
    void (*run)(const Stream& stream, const DeviceUpdates& updates);
    const RuleLaunch* next = nullptr;
};
/// The first entry of it; null: no file can launch any.
template <class Rule>
inline constinit const RuleLaunch<Rule>* rule_launches = nullptr;

/// The entry for a work; null: there is none.
template <class Rule>
const RuleLaunch<Rule>* launch_of(const AnyUpdateWork& work) {
    const RuleLaunch<Rule>* launch = rule_launches<Rule>;
    while (launch != nullptr && !launch->is_of(work)) { launch = launch->next; }
    return launch;
}

/// The entry for an UpdateTypes.
template <class Rule, class Types>
struct RuleLaunchOf {
    static bool is_of(const AnyUpdateWork& work) { return work.template is_of<Types>(); }
    static void run(const Stream& stream, const DeviceUpdates& updates) {
        engine::DeviceLaunchOf<engine::RuleUpdates<Rule, Types>>::run(stream, {updates});
    }
    static bool add() {
        entry.next = std::exchange(rule_launches<Rule>, &entry);
        return true;
    }
    static RuleLaunch<Rule> entry;
};
// In the class, nvcc 13.0 takes its type for incomplete.
template <class Rule, class Types>
constinit RuleLaunch<Rule> RuleLaunchOf<Rule, Types>::entry{&is_of, &run};

}  // namespace shardkit::detail

template <class Rule, class Types>
struct shardkit::engine::DeviceLaunchIs<shardkit::engine::RuleUpdates<Rule, Types>> {
    static inline const bool known = shardkit::detail::RuleLaunchOf<Rule, Types>::add();
};

namespace shardkit::detail {

/// What a rule does with elements, as functions of a `Base`. `Loops` has the update of elements, for the target that
/// the file is compiled for.
template <class Rule, class Loops, class Base>
class UpdatesOf : public Base {
    using Storage = typename StorageOf<Rule>::type;
    template <class A>
    using Update = typename Rule::template Update<A>;

  public:
    void update(const AnyUpdateWork& work, const AnyRuleUpdate& update,
                const ElementsToUpdate& elements) const final {
        if constexpr (Storage::format == StateFormat::full) {
            if (work.arithmetic == ElementType::fp64) { return update_in<double>(work, update, elements); }
        }
        if (work.arithmetic != ElementType::fp32) { refuse_update(); }
        update_in<float>(work, update, elements);
    }
    bool launches(const AnyUpdateWork& work) const final { return launch_of<Rule>(work) != nullptr; }
    void give(const Stream& stream, const DeviceUpdates& updates) const final {
        launch_of<Rule>(*updates.work)->run(stream, updates);
    }

  private:
    template <class A>
    static void update_in(const AnyUpdateWork& work, const AnyRuleUpdate& update, const ElementsToUpdate& elements) {
        const auto with = [&](auto n) {
            using Stored = std::conditional_t<n == 0, FullStates, Storage>;
            rules::UpdatedElements<A, n, Stored> its{elements.count,
                                                     elements.masters,
                                                     elements.half,
                                                     elements.gathered,
                                                     static_cast<const A*>(elements.gradients),
                                                     {},
                                                     {work.state_seed, work.steps, elements.element}};
            if constexpr (n > 0) {
                for (std::size_t s = 0; s < n; ++s) {
                    its.states[s] =
                        work.states[s].template as<Stored, A>(work.count).subspan(elements.begin, elements.count);
                }
            }
            Loops::update(*reinterpret_cast<const Update<A>*>(update.bytes), its);
        };
        if (!with_state_count<Update<A>, A>(StateCounts<Rule>{}, work.state_count, with)) { refuse_update(); }
    }

  protected:
    ~UpdatesOf() = default;
};
template <class Rule, class Loops>
class UpdatesAlone final : public UpdatesOf<Rule, Loops, UpdateFunctions> {};
template <class Rule, class Loops>
inline constexpr UpdatesAlone<Rule, Loops> updates_of{};

/// Those of a rule.
template <class Rule, class Loops>
class FunctionsOf final : public UpdatesOf<Rule, Loops, RuleFunctions> {
    using Options = typename Rule::Options;
    using Progress = typename Rule::Progress;

    // Cold: otherwise each caller has its own, where a program has one rule.
    [[gnu::cold]] std::string name() const override { return name_of_rule<Rule>(); }
    RuleKind kind() const override {
        return rules::MatrixRule<Rule>     ? RuleKind::matrices
               : rules::FactoredRule<Rule> ? RuleKind::sums
                                           : RuleKind::elements;
    }
    StateKind states() const override { return state_kind<Rule>(); }
    std::string_view state_name(std::size_t state) const override { return Rule::state_names[state]; }
    std::size_t state_count(const AnyOptions& options) const override {
        return Rule::state_count(options.as<Options>());
    }
    bool takes(std::size_t states) const override { return takes_states<Rule>(states); }
    [[gnu::cold]] void validate(const AnyOptions& options, ElementType arithmetic,
                                SourceLocation where) const override {
        validate_options<Rule>(options.as<Options>(), arithmetic, where);
    }
    [[gnu::cold]] AnyOptions options_of(const ParamGroup& group, const AnyOptions& options,
                                        SourceLocation where) const override {
        return {this, detail::options_of(group, options.as<Options>(), where)};
    }
    [[gnu::cold]] std::vector<std::pair<std::string, std::string>> statements(
        const AnyOptions& options) const override {
        return statements_of<Rule>(options.as<Options>());
    }

    [[gnu::cold]] AnyProgress beginning(ElementType arithmetic) const override {
        const Progress none{};
        AnyProgress any{this, arithmetic, none.steps};
        std::size_t i = 0;
        if constexpr (requires { Rule::products; }) {
            for (const auto& product : Rule::products) { any.products[i++] = none.*product.member; }
        }
        return any;
    }
    [[gnu::cold]] List<GroupProgress::Number> numbers() const override {
        List<GroupProgress::Number> numbers{{"steps", false}};
        if constexpr (requires { Rule::products; }) {
            for (const auto& product : Rule::products) {
                numbers.push_back(GroupProgress::Number{product.name, true});
            }
        }
        return numbers;
    }
    void begin(AnyProgress& progress, const ChosenOptions& given, const ChosenOptions& own, double scale,
               AnyRuleUpdate& update) const override {
        BeginsAs<Rule>::begin(progress, given, own, scale, update);
    }
    void begin(const Stream& stream, const BeginStep* first, std::uint64_t groups,
               const StepTables& work) const override {
        Loops::give_works(stream, first, groups, BeginUpdatesAs<Rule>{work});
    }
};
template <class Rule, class Loops>
inline constexpr FunctionsOf<Rule, Loops> functions_of{};

}  // namespace shardkit::detail
