// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
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
        groups_.for_each_state(
            [&](auto& state) {
                numbers_.add_group(context, state.identity(), state.geometry(), where);
                batches_of(state).add(state, options, numbers_.param_groups());
            },
            where);
        for_each_part([&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
            part_sizes_[I] = groups_.template part_size<I>();
        });
        for_each_batches([&](auto& batches) { batches.table().upload(context); });
        numbers_.begin(context);
        start_list();
        groups_.for_each_state([&](auto& state) { batches_of(state).list(state); }, where);
        for_each_batches([&](auto& batches) { batches.prepare(context, &numbers_.scalars()->skip); });
    }

    const Options& options() const noexcept { return numbers_.options(); }
    /// For schedules; takes effect with the next step.
    void set_learning_rate(double learning_rate, SourceLocation where = SourceLocation::current()) {
        numbers_.set_learning_rate(learning_rate, where);
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
            const bool scaled = reduced.has_loss_scale();
            check_step(reduced, scaled ? Act::norm : Act::update, where);
            update(std::forward<X>(reduced), scaled ? no_clip(global_norm(reduced, where), where) : ClipCoefficient{},
                   where);
        }
    }
    template <class X>
    void step(X&& reduced, ClipCoefficient coefficient, SourceLocation where = SourceLocation::current()) {
        check_type<X>();
        if constexpr (accepts<X>) {
            check_step(reduced, Act::update, where);
            check_coefficient(coefficient, reduced, where);
            update(std::forward<X>(reduced), coefficient, where);
        }
    }

    /// What this rank holds of every optimizer state.
    std::vector<ShardInfo> shards() {
        std::vector<ShardInfo> list;
        std::array<std::size_t, batches_count> next{};
        groups_.for_each_state([&](auto& state) {
            const auto& geometry = state.geometry();
            next_group(next, state).list(geometry, geometry.policy.optimizer, list);
        });
        return list;
    }

    /// Steps that the groups of part I have taken, for checkpoints and tests. Waits for the compute stream.
    template <std::size_t I>
    std::uint64_t steps(std::size_t index = 0) const {
        using Its = BatchesOf<PrecisionOf<std::tuple_element_t<I, std::tuple<T...>>>>;
        std::size_t number = index;
        for_each_part([&]<std::size_t J>(std::integral_constant<std::size_t, J>) {
            using Other = BatchesOf<PrecisionOf<std::tuple_element_t<J, std::tuple<T...>>>>;
            if (J < I && std::is_same_v<Other, Its>) { number += part_sizes_[J]; }
        });
        const Its& batches = std::get<Its>(batches_);
        const auto its = batches.groups()[number].number();
        return its ? batches.table().steps(*its) : 0;
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
        start_list();
        detail::StatementHash gradients = 0;  // all groups' are the same
        groups_.for_each_state([&](auto& state) {
            state.announce_update(where);
            batches_of(state).list(state);
            gradients = state.statements().gradients();
        });
        const Reduced<T...> consumed(std::move(reduced));
        const detail::StatementHash stated = numbers_.begin_step(
            consumed.divisor_scale(), coefficient, detail::Access::loss_scale(consumed), gradients, where);
        for_each_batches(
            [&](auto& batches) { batches.run(numbers_.context(), numbers_.scalars(), numbers_.engine_options()); });
        std::size_t number = 0;
        groups_.for_each_state([&](auto& state) { state.end_update(stated, numbers_.choices(number++), where); });
    }

    /// Refuses a step that these gradients or the model's state do not allow; nothing has changed then.
    void check_step(const Reduced<T...>& reduced, Act first, SourceLocation where) const {
        if (!(reduced.groups(where) == groups_)) {
            detail::FirstState<T...>::refuse_use(
                where, "optimizer step: these gradients belong to another model of the same type");
        }
        check_parts(std::index_sequence_for<T...>{}, where);
        bool expected = false;
        groups_.for_each_state([&](auto& state) {
            expected = expected || state.expect_update(first, where);
            state.begin_update(where);
        });
    }
    template <std::size_t... I>
    void check_parts(std::index_sequence<I...>, SourceLocation where) const {
        if (((groups_.template part_size<I>() != part_sizes_[I]) || ...)) {
            detail::FirstState<T...>::refuse_use(
                where, "optimizer step: a range of the model has grown or shrunk since the optimizer was made");
        }
        std::size_t number = 0;
        groups_.for_each_state(
            [&](auto& state) { numbers_.check_group(number++, state.identity(), state.path(), where); }, where);
    }
    static void check_coefficient(const ClipCoefficient& coefficient, const Reduced<T...>& reduced,
                                  SourceLocation where) {
        if (coefficient.total == nullptr && reduced.has_loss_scale()) {
            detail::FirstState<T...>::refuse_use(
                where,
                "optimizer step: a coefficient without a norm, for gradients with a loss scale, would "
                "hide an overflow; expected clip(norm, max_norm), no_clip(norm), or none");
        }
        if (coefficient.gradients != 0 && coefficient.gradients != reduced.identity()) {
            detail::FirstState<T...>::refuse_use(
                where,
                "optimizer step: the clip coefficient is of the norm of other gradients than these: "
                "take global_norm of what this step consumes");
        }
    }

    friend detail::Access;
    /// What of each group outlives a run: f(layer, its GroupOptimizer, the table with its progress).
    template <class F>
    void for_each_saved(const F& f, SourceLocation where) {
        check_parts(std::index_sequence_for<T...>{}, where);
        std::array<std::size_t, batches_count> next{};
        groups_.for_each([&](auto& layer) {
            auto& state = detail::Access::state(layer);
            f(layer, next_group(next, state), batches_of(state).table());
        });
    }

    template <class Part>
    using PrecisionOf = typename LayerOf<Part>::Precision;
    template <class Precision>
    using BatchesOf = detail::UpdateBatches<Rule, Engine, Precision>;
    using AllBatches = detail::DistinctOf<BatchesOf<PrecisionOf<T>>...>;
    static constexpr std::size_t batches_count = std::tuple_size_v<AllBatches>;

    template <class Precision>
    BatchesOf<Precision>& batches_of(const detail::GroupState<Engine, Precision>& /*state*/) noexcept {
        return std::get<BatchesOf<Precision>>(batches_);
    }
    /// The GroupOptimizer of the next group in a walk; `next`: of each precision, the number of its next group.
    template <class Precision>
    auto& next_group(std::array<std::size_t, batches_count>& next,
                     const detail::GroupState<Engine, Precision>& state) noexcept {
        constexpr std::size_t number = detail::position_of<BatchesOf<Precision>>(static_cast<AllBatches*>(nullptr));
        return batches_of(state).groups()[next[number]++];
    }
    /// f(batches) for the groups of each precision.
    template <class F>
    void for_each_batches(const F& f) {
        std::apply([&](auto&... batches) { (f(batches), ...); }, batches_);
    }
    template <class F>
    static void for_each_part(const F& f) {
        [&]<std::size_t... I>(std::index_sequence<I...>) { (f(std::integral_constant<std::size_t, I>{}), ...); }
        (std::index_sequence_for<T...>{});
    }
    void start_list() noexcept {
        for_each_batches([](auto& batches) { batches.start(); });
    }

    Groups<T...> groups_;
    std::array<std::size_t, sizeof...(T)> part_sizes_{};
    detail::OptimizerNumbers<Rule, Engine> numbers_;
    AllBatches batches_;
};

}  // namespace shardkit
