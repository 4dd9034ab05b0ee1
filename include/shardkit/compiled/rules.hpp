// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/backend/host/kernels.hpp>
#include <shardkit/backend/host/target.hpp>
#include <shardkit/compiled/optimizers.hpp>
#include <shardkit/compiled/own_rule.hpp>
#include <shardkit/core/factor.hpp>
#include <shardkit/core/lane_math.hpp>
#include <shardkit/optim/option_range.hpp>
#include <shardkit/optim/update.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/sharded/list_shards.hpp>

// What rules.hpp is in the compiled form: this file compiles the rule's loops, for the element types of its
// precisions, and the core calls them.

namespace shardkit::host::detail SHARDKIT_HOST_TARGET {

/// What the core calls of a rule, for groups of these precisions. Its loops are as this file is compiled.
template <class Rule, class... Precisions>
struct OwnRuleFunctions {
    using Own = shardkit::compiled::OwnOptions;
    using Table = shardkit::compiled::OwnRuleTable;
    using Options = typename Rule::Options;
    using Progress = typename Rule::Progress;
    static constexpr std::size_t states = Rule::state_names.size();
    static_assert(
        std::is_trivially_copyable_v<Options> && sizeof(Options) <= Own::most_bytes &&
            sizeof(typename Rule::template Update<double>) <= Table::most_update_bytes &&
            states <= Table::most_states,
        "SHARDKIT_COMPILED: a rule has at most 192 bytes of options, 128 of an update, and 4 states; compile a "
        "file with another one without SHARDKIT_COMPILED");
    static_assert(sizeof(Progress) == sizeof(std::uint64_t),
                  "SHARDKIT_COMPILED: a rule's Progress counts steps alone (rules::CountsSteps); compile a file with "
                  "another one without SHARDKIT_COMPILED");

    /// f(name, the rule's member, OwnOptions' member) for each that the core knows by name.
    template <class O, class To, class F>
    static constexpr void for_each_member(O& options, To& to, const F& f) {
        f("learning_rate", options.learning_rate, to.learning_rate);
        f("weight_decay", options.weight_decay, to.weight_decay);
        if constexpr (requires { options.beta1; }) { f("beta1", options.beta1, to.beta1); }
        if constexpr (requires { options.beta2; }) { f("beta2", options.beta2, to.beta2); }
        if constexpr (requires { options.epsilon; }) { f("epsilon", options.epsilon, to.epsilon); }
        if constexpr (requires { options.momentum; }) { f("momentum", options.momentum, to.momentum); }
    }
    static Own to_own(const Options& options) {
        Own own{&table};
        std::memcpy(own.bytes, &options, sizeof options);
        for_each_member(options, own, [](auto, const auto& from, auto& to) { to = static_cast<double>(from); });
        return own;
    }
    static Options from(const Own& own) {
        Options options;
        std::memcpy(static_cast<void*>(&options), own.bytes, sizeof options);
        for_each_member(options, own, [](auto, auto& to, const auto& from) {
            to = static_cast<std::remove_reference_t<decltype(to)>>(from);
        });
        return options;
    }

  private:
    static constexpr auto members = [] {
        struct {
            std::array<std::string_view, 6> names{};
            std::size_t count = 0;
        } listed;
        Options options{};
        Own own;
        for_each_member(options, own,
                        [&](std::string_view name, auto&, auto&) { listed.names[listed.count++] = name; });
        return listed;
    }();

    template <class Spans>
    static void run(const void* update, const void* spans) {
        using Update = typename Rule::template Update<typename Spans::A>;
        shardkit::detail::HostKernels::update(InlineStream{}, *static_cast<const Update*>(update),
                                              *static_cast<const Spans*>(spans));
    }
    struct Loops {
        std::array<Table::Loop, 2 * sizeof...(Precisions) * (states + 1)> loops{};
        std::size_t count = 0;

        template <class P, class Updated, std::size_t N>
        constexpr void add() {
            using A = Arithmetic<Updated>;
            if constexpr (rules::UpdateOf<typename Rule::template Update<A>, A, N>) {
                using Spans = rules::UpdateSpans<Updated, typename P::Gather, typename P::Reduction, N,
                                                 shardkit::detail::FullStates>;
                loops[count++] = {element_type_of<Updated>, element_type_of<typename P::Gather>,
                                  element_type_of<typename P::Reduction>, N, &run<Spans>};
            }
        }
        template <class P, std::size_t... N>
        constexpr void add_all(std::index_sequence<N...> /*states*/) {
            (add<P, typename P::Master, N>(), ...);
            if constexpr (shardkit::detail::can_drop_master<P>) { (add<P, typename P::Gather, N>(), ...); }
        }
    };
    static constexpr Loops listed = [] {
        Loops made;
        (made.template add_all<Precisions>(std::make_index_sequence<states + 1>{}), ...);
        return made;
    }();
    static constexpr std::array<std::string_view, states> state_names = Rule::state_names;
    static constexpr std::string_view name() {
        if constexpr (requires { std::string_view(Rule::name); }) { return Rule::name; }
        return {};
    }

    static std::size_t state_count(const Own& options) { return Rule::state_count(from(options)); }
    static void validate(const Own& options, ElementType arithmetic, SourceLocation where) {
        shardkit::detail::validate_options<Rule>(from(options), arithmetic, where);
    }
    static void list_choices(const Own& own, void (*add)(void* to, std::string_view name, unsigned number),
                             void* to) {
        [[maybe_unused]] const Options options = from(own);
        if constexpr (requires { static_cast<unsigned>(options.rule); }) {
            add(to, "momentum rule", static_cast<unsigned>(options.rule));
        }
        if constexpr (requires { static_cast<unsigned>(options.scale); }) {
            add(to, "scale", static_cast<unsigned>(options.scale));
        }
    }
    static void update(ElementType arithmetic, std::uint64_t steps, const Own& own, double scale, void* update) {
        Progress progress;
        progress.steps = static_cast<decltype(progress.steps)>(steps);
        const Options options = from(own);
        if (arithmetic == ElementType::fp64) {
            new (update)
                typename Rule::template Update<double>(Rule::template update<double>(progress, options, scale));
        } else {
            new (update)
                typename Rule::template Update<float>(Rule::template update<float>(progress, options, scale));
        }
    }

  public:
    static constexpr Table table{name(),
                                 state_names,
                                 std::span(members.names.data(), members.count),
                                 std::span(listed.loops.data(), listed.count),
                                 &state_count,
                                 &validate,
                                 &list_choices,
                                 &update};
};

template <class Rule, class List>
struct OwnRuleOver;
template <class Rule, class... P>
struct OwnRuleOver<Rule, Precisions<P...>> {
    using type = OwnRuleFunctions<Rule, P...>;
};

}  // namespace shardkit::host::detail SHARDKIT_HOST_TARGET

namespace shardkit::rules SHARDKIT_BUILD {

/// An optimizer made of a rule: see optim/rule_optimizer.hpp. The program links compiled_parts.hpp's core.
template <class Rule, class Engine, class Precision>
class RuleOptimizer : public shardkit::detail::RuleVerbs<Engine> {
    using Verbs = shardkit::detail::RuleVerbs<Engine>;
    using Own = typename host::detail::OwnRuleOver<Rule, shardkit::detail::PrecisionsOf<Precision>>::type;

  public:
    using Options = typename Rule::Options;

    RuleOptimizer(const Model<Engine, Precision>& model, const Options& options, std::vector<ParamGroup> param_groups,
                  SourceLocation where)
        : Verbs(model, compiled::make_own_optimizer(model.core(where), Own::to_own(options), std::move(param_groups),
                                                    where)) {}

    Options options() const { return Own::from(*static_cast<const compiled::OwnOptions*>(this->rule({}).options())); }
    void set_options(const Options& options, SourceLocation where = SourceLocation::current()) {
        const compiled::OwnOptions own = Own::to_own(options);
        this->rule(where).set_options(&own, where);
    }
};

}  // namespace SHARDKIT_BUILD
