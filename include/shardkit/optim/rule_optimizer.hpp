// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/detail/list.hpp>
#include <shardkit/detail/range.hpp>
#include <shardkit/optim/begin_step.hpp>
#include <shardkit/optim/factored_rule.hpp>
#include <shardkit/optim/group_optimizer.hpp>
#include <shardkit/optim/group_progress.hpp>
#include <shardkit/optim/matrix_rule.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/optim/optimizer_groups.hpp>
#include <shardkit/optim/optimizer_numbers.hpp>
#include <shardkit/optim/option_range.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/update_table.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>

namespace shardkit::rules {

/// A rule says what one optimizer is, beside what all share; a struct per optimizer, AdamWRule for example:
///   Options       hyper-parameters, with learning_rate and weight_decay
///   ranges        an array of OptionRange: what each of them may be, also in the arithmetic of the updates; with it
///   a
///                 `name`, which refusals begin with. What a range cannot say validate(options, where) refuses; a
///                 rule has one of the two or both
///   state_names   array of the states' names, of which the first state_count(options) exist with these options
///   Progress      what advances with a group's steps: `steps`, and running products, say
///   advance(progress, options)           counts one step
///   Update<A>     one element's step in float or double, see UpdateOf
///   update<A>(progress, options, scale)  makes it; `scale` is everything that multiplies the raw gradient
///   products      where Progress has more than `steps`: an array of ProgressProduct, by which checkpoints know the
///   rest
/// Options, Progress and Update<A> are trivially copyable: they lie in the engine's memory. advance and update are
/// constexpr: they run where the kernels do.
template <class R>
concept OptimizerRule = requires(typename R::Progress& progress, const typename R::Options& options, double scale,
                                 SourceLocation where) {
    { R::state_names.size() } -> std::same_as<std::size_t>;
    { R::state_count(options) } -> std::same_as<std::size_t>;
    { options.learning_rate + options.weight_decay } -> std::same_as<double>;
    requires StatesRanges<R> || requires { validate(options, where); };
    { progress.steps } -> std::convertible_to<std::uint64_t>;
    R::advance(progress, options);
    { R::template update<float>(progress, options, scale) } -> std::same_as<typename R::template Update<float>>;
    { R::template update<double>(progress, options, scale) } -> std::same_as<typename R::template Update<double>>;
    requires std::is_trivially_copyable_v<typename R::Options>;
    requires std::is_trivially_copyable_v<typename R::Progress>;
    requires std::is_trivially_copyable_v<typename R::template Update<float>>;
    requires std::is_trivially_copyable_v<typename R::template Update<double>>;
};

}  // namespace shardkit::rules

namespace shardkit {

namespace detail {
/// Whether a rule's products name all that its Progress has beside `steps`.
template <class Rule>
constexpr bool progress_is_named() {
    std::size_t members = 1;
    if constexpr (requires { Rule::products; }) { members += Rule::products.size(); }
    return sizeof(typename Rule::Progress) == 8 * members;
}

/// A tuple of X<P> for each of a list of precisions.
template <template <class> class X, class List>
struct TupleOf;
template <template <class> class X, class... P>
struct TupleOf<X, Precisions<P...>> {
    using type = std::tuple<X<P>...>;
};
}  // namespace detail

}  // namespace shardkit

namespace shardkit::rules SHARDKIT_BUILD {

/// An optimizer made of a rule: its states (one buffer per state and group, over the elements that this rank
/// updates), parameter groups and each step's updates. AdamW, SGD and the others derive from it, and so does one of
/// your own; see docs/own_optimizer.md.
template <class Rule, class EngineType, class PrecisionType>
class RuleOptimizer : public Optimizer<EngineType> {
    static_assert(OptimizerRule<Rule>,
                  "RuleOptimizer<Rule, ...>: Rule must satisfy OptimizerRule; see optim/rule_optimizer.hpp");
    static_assert(
        detail::progress_is_named<Rule>(),
        "RuleOptimizer<Rule, ...>: Rule::Progress has more than `steps`: Rule::products must name the rest");

  public:
    using Options = typename Rule::Options;
    using Engine = EngineType;

    /// @throws std::invalid_argument for hyper-parameters out of range, a ParamGroup that decides for no parameter,
    /// or
    ///         two groups with one path
    RuleOptimizer(const Model<Engine, PrecisionType>& model, const Options& options,
                  std::vector<ParamGroup> param_groups, SourceLocation where)
        : RuleOptimizer(model, options, std::move(param_groups), detail::MatrixSetup<Engine>{}, where) {}

  protected:
    /// The same for a MatrixRule, with what its whole matrices need. Collective over the world then.
    RuleOptimizer(const Model<Engine, PrecisionType>& model, const Options& options,
                  std::vector<ParamGroup> param_groups, const detail::MatrixSetup<Engine>& setup,
                  SourceLocation where)
        : Optimizer<Engine>(model),
          model_(model),
          numbers_(options, std::move(param_groups), detail::narrowest_arithmetic(model, where), where) {
        detail::require_matches(this->model(), this->param_groups(), where);
        if constexpr (MatrixRule<Rule>) {
            for_each_batches([&](auto& batches) { batches.set_up(setup); });
        }
        auto& context = model.context(where);
        model.for_each_state(
            [&](auto& state) {
                numbers_.add_group(context, state.geometry(), where);
                batches_of(state).add(state, options, numbers_.param_groups(), where);
            },
            where);
        numbers_.begin(context);
        make_tables(where);
        for_each_group(
            [this](auto& state, auto& group, auto& /*table*/) {
                for (std::size_t p = 0; p < group.updated().size(); ++p) {
                    const PlacedParameter& parameter = state.geometry().parameters[p];
                    if (state.trainable() && !parameter.frozen && !group.updates(p)) {
                        this->leave(detail::concat(state.path(), ".", parameter.name));
                    }
                }
            },
            where);
    }
    /// f(batches) for the groups of each precision.
    template <class F>
    [[gnu::always_inline]] void for_each_batches(const F& f) {
        detail::for_each_of(batches_, f);
    }

  public:
    const Options& options() const noexcept { return numbers_.options(); }
    double learning_rate() const noexcept override { return options().learning_rate; }
    /// The learning rate that was given last, which set_learning_rate_factor multiplies.
    double given_learning_rate() const noexcept { return numbers_.given_rate(); }
    void set_learning_rate(double learning_rate, SourceLocation where = SourceLocation::current()) override {
        this->require_between_steps("set_learning_rate", where);
        numbers_.set_learning_rate(learning_rate, learning_rate, where);
    }
    /// Replaces all hyper-parameters, the learning rate too; takes effect with the next step. What a ParamGroup gives
    /// stays that group's. A bias correction is by the products of the betas that the steps were made with.
    /// Order:   stream-ordered; local work. Ranks compare the hyper-parameters with the next step's.
    /// @throws  std::invalid_argument for what is out of range, or another number of states (another Momentum, say):
    ///          nothing has changed then
    void set_options(const Options& options, SourceLocation where = SourceLocation::current()) {
        this->require_between_steps("set_options", where);
        numbers_.set_options(options, where);
    }
    std::span<const ParamGroup> param_groups() const noexcept { return numbers_.param_groups(); }
    /// Replaces what ParamGroups give, likewise. Each is of the same parameters as before.
    ///     std::vector groups(optimizer.param_groups().begin(), optimizer.param_groups().end());
    ///     groups[0].weight_decay = decay_of(step);
    ///     optimizer.set_param_groups(std::move(groups));
    /// @throws  std::invalid_argument for what is out of range, or a parameter that another group matches than before
    void set_param_groups(std::vector<ParamGroup> param_groups, SourceLocation where = SourceLocation::current()) {
        this->require_between_steps("set_param_groups", where);
        for (const ParamGroup& group : param_groups) { validate(group, where); }
        const std::span<const ParamGroup> to(param_groups.data(), param_groups.size());
        detail::require_matches(this->model(), to, where);
        detail::List<detail::Statements> choices;
        for (detail::Group<Engine>& group : detail::Access::each(this->model(), where)) {
            numbers_.require_same_groups(group.geometry(), to, where);
            choices.push_back(detail::param_group_statements(group.geometry(), to, where));
        }
        numbers_.set_param_groups(std::move(param_groups), std::move(choices), where);
    }

    std::vector<ShardInfo> shards() override {
        std::vector<ShardInfo> list;
        for_each_group([&](auto& state, auto& group, auto& /*table*/) { group.list(state.geometry(), list); },
                       SourceLocation{});
        return list;
    }

  private:
    template <class P>
    using BatchesOf = detail::OptimizerGroups<Rule, Engine, P>;
    using AllBatches = typename detail::TupleOf<BatchesOf, detail::PrecisionsOf<PrecisionType>>::type;

    template <class P>
    BatchesOf<P>& batches_of(const detail::GroupState<Engine, P>& /*state*/) noexcept {
        return std::get<BatchesOf<P>>(batches_);
    }
    /// f(group state, its GroupOptimizer, the table with its progress) for every group, in order.
    template <class F>
    [[gnu::always_inline]] void for_each_group(const F& f, SourceLocation where) {
        this->require_here(where);
        for_each_batches([](auto& batches) { batches.start(); });
        model_.for_each_state(
            [&](auto& state) {
                auto& batches = batches_of(state);
                f(state, batches.next(), batches.table());
            },
            where);
    }
    void list(SourceLocation where) {
        for_each_batches([](auto& batches) { batches.start(); });
        model_.for_each_state([&](auto& state) { batches_of(state).list(state); }, where);
    }

    /// Once all groups have chosen their hyper-parameters.
    void make_tables(SourceLocation where) {
        auto& context = numbers_.context();
        for_each_batches([&](auto& batches) { batches.table().upload(context); });
        list(where);
        for_each_batches([&](auto& batches) { batches.prepare(context, &numbers_.scalars()->skip, where); });
    }

    void change_rates(double to, double from, detail::RateChange change, SourceLocation where) override {
        this->require_between_steps("set_learning_rate", where);
        const double rate = to * (numbers_.given_rate() / from);
        numbers_.require_learning_rate(rate, where);
        if (change == detail::RateChange::make) { numbers_.set_learning_rate(rate, numbers_.given_rate(), where); }
    }
    detail::StatementHash run(const Reduced<Engine>& reduced, const ClipCoefficient& coefficient,
                              const detail::StepShare& share, SourceLocation where) override {
        list(where);
        const detail::StatementHash stated = numbers_.begin_step(
            detail::Access::stated(reduced), detail::Access::loss_scale(reduced), coefficient, share, where);
        try {
            for_each_batches([&](auto& batches) {
                batches.run(numbers_.context(), numbers_.scalars(), numbers_.engine_options(), numbers_.first(),
                            where);
            });
            numbers_.run_first();
        } catch (...) {  // some groups are updated, and one perhaps in part
            for (detail::Group<Engine>& group : detail::Access::each(this->model(), where)) {
                if (group.trainable() && !group.step().skipped()) { tear(group, "optimizer step", where); }
            }
            throw;
        }
        return stated;
    }
    detail::StatementHash begin_backward(const detail::StatedStep& step, SourceLocation where) override {
        if constexpr (!detail::updates_alone<Rule>) {
            detail::Group<Engine>::refuse_use(
                where,
                MatrixRule<Rule>
                    ? "optimizer step_in_backward: this optimizer's ranks exchange the matrices of all groups "
                      "at once; expected one that updates elements, or a step without step_in_backward"
                    : "optimizer step_in_backward: this optimizer adds numbers of all groups over the ranks at "
                      "once; expected one that updates elements, or a step without step_in_backward");
        }
        const detail::StatementHash stated = numbers_.begin_step(step, nullptr, {}, {}, where);
        numbers_.run_first();
        return stated;
    }
    void run_alone(detail::Group<Engine>& group) override {
        if constexpr (detail::updates_alone<Rule>) {
            model_.with_state(group, [this](auto& state) {
                batches_of(state).run_alone(state, numbers_.scalars(), numbers_.engine_options());
            });
        }
    }
    void tear(detail::Group<Engine>& torn, std::string_view verb, SourceLocation where) override {
        model_.with_state(torn, [&](auto& state) {
            const auto& group = batches_of(state).group_of(state);
            for (std::size_t p = 0; p < group.updated().size(); ++p) {
                if (!group.updates(p)) { continue; }
                using detail::TornValues;
                state.torn().begin(p, TornValues::parameters, verb, where);
                for (std::size_t s = 0; s < group.states_used(); ++s) {
                    state.torn().begin(p, group.state_name(s), verb, where);
                }
            }
        });
    }
    const detail::StatementsHandle& choices(std::size_t number) const noexcept override {
        return numbers_.choices(number);
    }
    detail::List<detail::List<char>> updated(SourceLocation where) override {
        detail::List<detail::List<char>> all;
        for_each_group([&](auto& /*state*/, auto& group, auto& /*table*/) { all.push_back(group.updated()); }, where);
        return all;
    }

    detail::List<OptimizerStates> kept_states(SourceLocation where) override {
        detail::List<OptimizerStates> all;
        constexpr StateFormat format = detail::StorageOf<Rule>::type::format;
        for_each_group(
            [&](auto& /*state*/, auto& group, auto& /*table*/) {
                all.push_back({group.states_used(), format});
            },
            where);
        return all;
    }
    std::uint64_t steps_of(const detail::Group<Engine>& wanted, SourceLocation where) const override {
        this->require_here(where);
        std::optional<std::uint64_t> steps;
        std::apply([&](const auto&... batches) { ((steps = steps ? steps : batches.steps(wanted.identity())), ...); },
                   batches_);
        if (!steps) { wanted.refuse_group(where, "steps() of a group that is not one of the optimizer's model"); }
        return *steps;
    }

    void visit(detail::StateVisitor<Engine>& visitor, SourceLocation where) override {
        using Purpose = typename detail::StateVisitor<Engine>::Purpose;
        const Purpose purpose = visitor.purpose();
        detail::List<detail::GroupProgress> all;
        bool as_chosen = true;
        const std::string rule = detail::name_of_rule<Rule>(options());
        for_each_group(
            [&](auto& state, auto& group, auto& table) {
                detail::GroupProgress& progress = all.emplace_back();
                if (!group.number()) { return; }
                visitor.group(state, group.reader(), rule);
                progress = group.progress(table);
                visitor.progress(progress);
                if (!group.cuts_at_blocks(progress)) {
                    state.refuse_group(
                        where,
                        "load: a parameter has grown by rows that begin inside a block of 8 bits, whose "
                        "elements would have taken different numbers of steps: expected "
                        "StateFormat::bf16 or full");
                }
                for (std::size_t s = 0; s < group.states_used(); ++s) {
                    visitor.state(group.state_name(s), group.state(s), (detail::squares_of<Rule>() >> s & 1U) != 0);
                }
                if constexpr (!detail::updates_alone<Rule>) {
                    if (purpose == Purpose::capture || purpose == Purpose::compare) {
                        batches_of(state).for_each_kept(state, [&](const auto& kept) { visitor.kept(kept); });
                    }
                }
                const bool takes = purpose == Purpose::capture || purpose == Purpose::compare;
                as_chosen = (takes || group.takes(progress)) && as_chosen;
            },
            where);
        if (purpose == Purpose::compare) { visitor.hyper_parameters(numbers_.read_hash(where)); }
        if (!as_chosen) { require_not_captured(where); }
        if (purpose != Purpose::restore) { return; }
        if (!as_chosen) { return choose_again(all, where); }
        std::size_t number = 0;
        for_each_group(
            [&](auto& /*state*/, auto& group, auto& table) {
                const detail::GroupProgress& progress = all[number++];
                if (group.number()) { group.set_progress(progress, table); }
            },
            where);
    }
    void require_not_captured(SourceLocation where) {
        for_each_batches([&](auto& batches) {
            if (!batches.captured()) { return; }
            detail::Group<Engine>::refuse_use(
                where,
                "load: parameters of one group have taken different numbers of steps, "
                "for which the optimizer makes its tables anew, "
                "and a graph has captured a step with the old ones: make a new optimizer before");
        });
    }
    /// Makes the tables anew for parameters that had one choice of hyper-parameters and are not as far as each other
    /// any more.
    void choose_again(const detail::List<detail::GroupProgress>& progress, SourceLocation where) {
        for_each_batches([](auto& batches) { batches.restart(); });
        std::size_t number = 0;
        model_.for_each_state(
            [&](auto& state) { batches_of(state).choose(state, numbers_.param_groups(), progress[number++]); },
            where);
        make_tables(where);
    }

    Model<Engine, PrecisionType> model_;
    detail::OptimizerNumbers<Rule, Engine> numbers_;
    AllBatches batches_;
};

}  // namespace shardkit::rules SHARDKIT_BUILD
