// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/group_optimizer.hpp>
#include <shardkit/optim/optimizer_numbers.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/step_work.hpp>
#include <shardkit/optim/update_batches.hpp>
#include <shardkit/optim/update_table.hpp>
#include <shardkit/rank/engine_table.hpp>

namespace shardkit {

/// What one optimizer is, beside what all share; a struct per optimizer, AdamWRule for example:
///   Options       hyper-parameters, with learning_rate and weight_decay; validate(options, where) refuses bad ones
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
    validate(options, where);
    { progress.steps } -> std::convertible_to<std::uint64_t>;
    R::advance(progress, options);
    { R::template update<float>(progress, options, scale) } -> std::same_as<typename R::template Update<float>>;
    { R::template update<double>(progress, options, scale) } -> std::same_as<typename R::template Update<double>>;
    requires std::is_trivially_copyable_v<typename R::Options>;
    requires std::is_trivially_copyable_v<typename R::Progress>;
    requires std::is_trivially_copyable_v<typename R::template Update<float>>;
    requires std::is_trivially_copyable_v<typename R::template Update<double>>;
};

/// What every optimizer shares: its states (one buffer per state and group, over the elements that this rank
/// updates), parameter groups, loss-scale protocol and the walk over a model.
/// Scalars of a step (step counts, learning rate, clip coefficient, loss scale) live in the engine's memory and are
/// computed in the compute stream's order: a step waits for nothing and can be captured in a graph.
template <class Rule, class... T>
class Optimizer {
    static_assert(OptimizerRule<Rule>,
                  "Optimizer<Rule, ...>: Rule must satisfy OptimizerRule; see optim/optimizer.hpp");

  public:
    using Options = typename Rule::Options;
    using Engine = typename LayerOf<std::tuple_element_t<0, std::tuple<T...>>>::Engine;

    /// @throws std::invalid_argument for hyper-parameters out of range, or two groups with one path
    Optimizer(const Groups<T...>& groups, const Options& options, std::vector<ParamGroup> param_groups,
              SourceLocation where)
        : groups_(groups), numbers_(options, std::move(param_groups), where) {
        auto& context = groups_.context(where);
        groups_.for_each_indexed([&](auto& layer, auto part, std::size_t) {
            auto& state = detail::Access::state(layer);
            numbers_.add_group(context, state.identity(), state.geometry(), where);
            constexpr std::size_t I = decltype(part)::value;
            auto& optimizers = std::get<I>(group_optimizers_);
            std::remove_reference_t<decltype(optimizers)>::value_type::append(
                optimizers, layer.context(), state.geometry(), options, numbers_.param_groups(), table_of<I>());
        });
        for_each_table([&](auto& table) { table.upload(context); });
        numbers_.begin(context);
        list_groups();
        for_each_batches([&](auto& batches, const auto* updates) {
            batches.prepare(context, updates, &numbers_.scalars()->skip);
        });
    }

    const Options& options() const noexcept { return numbers_.options(); }
    /// For schedules; takes effect with the next step.
    void set_learning_rate(double learning_rate, SourceLocation where = SourceLocation::current()) {
        numbers_.set_learning_rate(groups_.context(), learning_rate, where);
    }

    /// Updates every group from its reduced gradients and writes the next gather's source, in one pass.
    /// With a loss scale, a step whose gradients overflowed changes nothing but the scale; without a clip
    /// coefficient the norm is computed for that. Local work then; collective over the world otherwise.
    /// A step that is refused leaves the gradients to the caller: they can be given again once the reason is gone.
    /// @throws UsageError when the gradients are another model's, were consumed, or a window is open
    template <class X>
    void step(X&& reduced, SourceLocation where = SourceLocation::current()) {
        check_type<X>();
        if constexpr (accepts<X>) {
            // Before the norm: a rank that is refused must not have taken part in a collective that it will repeat.
            check_step(reduced, where);
            const bool scaled = reduced.has_loss_scale();
            update(std::forward<X>(reduced), scaled ? no_clip(global_norm(reduced, where), where) : ClipCoefficient{},
                   where);
        }
    }
    template <class X>
    void step(X&& reduced, ClipCoefficient coefficient, SourceLocation where = SourceLocation::current()) {
        check_type<X>();
        if constexpr (accepts<X>) {
            check_step(reduced, where);
            check_coefficient(coefficient, reduced, where);
            update(std::forward<X>(reduced), coefficient, where);
        }
    }

    /// What this rank holds of every optimizer state.
    std::vector<ShardInfo> shards() {
        std::vector<ShardInfo> list;
        groups_.for_each_indexed([&](auto& layer, auto part, std::size_t index) {
            const auto& geometry = detail::Access::state(layer).geometry();
            std::get<decltype(part)::value>(group_optimizers_)[index].list(geometry, geometry.policy.optimizer, list);
        });
        return list;
    }

    /// Steps that the groups of part I have taken, for checkpoints and tests. Waits for the compute stream.
    template <std::size_t I>
    std::uint64_t steps(std::size_t index = 0) const {
        const auto number = std::get<I>(group_optimizers_)[index].number();
        return number ? std::get<table_number<I>>(tables_).steps(*number) : 0;
    }

  private:
    template <class X>
    static constexpr bool accepts =
        std::is_same_v<std::remove_cvref_t<X>, Reduced<T...>> && !std::is_lvalue_reference_v<X>;

    template <class X>
    static constexpr void check_type() {
        using Given = std::remove_cvref_t<X>;
        constexpr bool is_reduced = detail::IsReduced<Given>::value;
        static_assert(is_reduced,
                      "optimizer step takes reduced gradients: call reduce(std::move(accumulation), "
                      "divisor) first");
        constexpr bool same_model = !is_reduced || std::is_same_v<Given, Reduced<T...>>;
        static_assert(same_model, "optimizer step: these gradients belong to other groups than the optimizer's");
        constexpr bool consumed = !std::is_lvalue_reference_v<X>;
        static_assert(!is_reduced || consumed,
                      "optimizer step consumes the gradients: write step(std::move(reduced), ...)");
    }

    /// A step that was checked.
    void update(Reduced<T...>&& reduced, ClipCoefficient coefficient, SourceLocation where) {
        for_each_directed([&](const auto& directed) { directed.before(Act::update, where); });
        const Reduced<T...> consumed(std::move(reduced));
        auto& context = groups_.context();
        context.compare_calls(where);
        detail::StatementHash gradients = 0;
        groups_.for_each([&](auto& layer) { gradients = detail::Access::state(layer).statements().gradients(); });
        const detail::StatementHash stated = numbers_.state_step(context, coefficient, gradients, where);
        std::size_t number = 0;
        groups_.for_each([&](auto& layer) {
            auto& state = detail::Access::state(layer);
            const std::size_t its = number++;
            if (state.trainable() && !state.step().skipped()) {
                state.statements().add_update(stated, numbers_.choices(its));
            }
        });
        numbers_.begin_step(context, consumed.divisor_scale(), coefficient, detail::Access::loss_scale(consumed));
        list_groups();
        for_each_table([&](auto& table) {
            table.begin(context.compute_stream(), numbers_.scalars(), numbers_.engine_options());
        });
        for_each_batches(
            [&](auto& batches, const auto* updates) { batches.run(context, updates, &numbers_.scalars()->skip); });
        for_each_directed([&](const auto& directed) { directed.after(Act::update, where); });
    }
    /// f for every group that the step updates.
    template <class F>
    void for_each_directed(const F& f) const {
        groups_.for_each([&](auto& layer) {
            auto& state = detail::Access::state(layer);
            if (state.trainable() && !state.step().skipped()) { f(state.directed()); }
        });
    }

    /// Refuses a step that these gradients or the model's state do not allow; nothing has changed then.
    void check_step(const Reduced<T...>& reduced, SourceLocation where) const {
        if (!(reduced.groups(where) == groups_)) {
            throw_usage_error(where, "optimizer step: these gradients belong to another model of the same type");
        }
        check_parts(std::index_sequence_for<T...>{}, where);
        groups_.for_each([&](auto& layer) { detail::Access::state(layer).begin_update(where); });
    }
    template <std::size_t... I>
    void check_parts(std::index_sequence<I...>, SourceLocation where) const {
        if (((groups_.template part_size<I>() != std::get<I>(group_optimizers_).size()) || ...)) {
            throw_usage_error(
                where, "optimizer step: a range of the model has grown or shrunk since the optimizer was made");
        }
        std::size_t number = 0;
        groups_.for_each([&](auto& layer) {
            numbers_.check_group(number++, detail::Access::state(layer, where).identity(), layer.path(), where);
        });
    }
    static void check_coefficient(const ClipCoefficient& coefficient, const Reduced<T...>& reduced,
                                  SourceLocation where) {
        if (coefficient.total == nullptr && reduced.has_loss_scale()) {
            throw_usage_error(where,
                              "optimizer step: a coefficient without a norm, for gradients with a loss scale, would "
                              "hide an overflow; expected clip(norm, max_norm), no_clip(norm), or none");
        }
        if (coefficient.gradients != 0 && coefficient.gradients != reduced.identity()) {
            throw_usage_error(where,
                              "optimizer step: the clip coefficient is of the norm of other gradients than these: "
                              "take global_norm of what this step consumes");
        }
    }

    friend detail::Access;
    /// What of each group outlives a run: f(layer, its GroupOptimizer, the table with its progress).
    template <class F>
    void for_each_saved(const F& f, SourceLocation where) {
        check_parts(std::index_sequence_for<T...>{}, where);
        groups_.for_each_indexed([&](auto& layer, auto part, std::size_t index) {
            constexpr std::size_t I = decltype(part)::value;
            f(layer, std::get<I>(group_optimizers_)[index], table_of<I>());
        });
    }

    template <class Part>
    using PrecisionOf = typename LayerOf<Part>::Precision;
    template <class Part>
    using ArithmeticOf = Arithmetic<typename PrecisionOf<Part>::Master>;
    /// What parts of one arithmetic type, or of one precision, share is kept with the first of them.
    template <std::size_t I>
    static constexpr std::size_t table_number = detail::first_of_type<I, ArithmeticOf<T>...>;
    template <std::size_t I>
    static constexpr std::size_t batches_number = detail::first_of_type<I, PrecisionOf<T>...>;
    template <std::size_t I>
    auto& table_of() noexcept {
        return std::get<table_number<I>>(tables_);
    }

    /// f(table) for the table of each arithmetic type.
    template <class F>
    void for_each_table(const F& f) {
        for_each_part([&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
            if constexpr (table_number<I> == I) { f(std::get<I>(tables_)); }
        });
    }
    /// f(batches, the updates that they refer to) for the groups of each precision.
    template <class F>
    void for_each_batches(const F& f) {
        for_each_part([&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
            if constexpr (batches_number<I> == I) { f(std::get<I>(batches_), table_of<I>().updates()); }
        });
    }
    template <class F>
    static void for_each_part(const F& f) {
        [&]<std::size_t... I>(std::index_sequence<I...>) { (f(std::integral_constant<std::size_t, I>{}), ...); }
        (std::index_sequence_for<T...>{});
    }
    /// Tells tables and batches which groups take part in a step.
    void list_groups() {
        for_each_batches([](auto& batches, const auto* /*updates*/) { batches.start(); });
        groups_.for_each_indexed([&](auto& layer, auto part, std::size_t index) {
            constexpr std::size_t I = decltype(part)::value;
            auto& group = std::get<I>(group_optimizers_)[index];
            if (!group.number()) { return; }
            auto& state = detail::Access::state(layer);
            const bool taken = !state.step().skipped();
            table_of<I>().take(*group.number(), taken);
            std::get<batches_number<I>>(batches_).list(group, state, table_of<I>().engine_steps(*group.number()),
                                                       taken);
        });
    }

    Groups<T...> groups_;
    detail::OptimizerNumbers<Rule, Engine> numbers_;
    std::tuple<std::vector<detail::GroupOptimizer<Rule, Engine, ArithmeticOf<T>>>...> group_optimizers_;
    // Their ends wait for the kernels that use what is above.
    std::tuple<detail::UpdateTable<Rule, Engine, ArithmeticOf<T>>...> tables_;
    std::tuple<detail::UpdateBatches<Rule, Engine, PrecisionOf<T>>...> batches_;
};

}  // namespace shardkit
