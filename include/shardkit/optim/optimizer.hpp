// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <shardkit/detail/validate_number.hpp>
#include <shardkit/layout/segments.hpp>
#include <shardkit/mesh/engine_table.hpp>
#include <shardkit/optim/begin_step.hpp>
#include <shardkit/optim/begin_update.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/set_options.hpp>
#include <shardkit/optim/update_run.hpp>
#include <shardkit/sharded/list_shards.hpp>

namespace shardkit {

/// What every optimizer shares: its states (one buffer per state and group, over the elements that this rank
/// updates), parameter groups, loss-scale protocol and the walk over a model. `Rule` supplies the arithmetic:
///   Rule::Options; Rule::state_names; Rule::Progress (per group: step count and running products);
///   Rule::advance(progress, options) before a group's update; Rule::update<A>(progress, options, scale) ->
///   Update<A>; Rule::run<Kernels>(stream, runs, updates, skip, spans of what this rank updates).
/// Scalars of a step (step counts, learning rate, clip coefficient, loss scale) live in the engine's memory and are
/// computed in the compute stream's order: a step waits for nothing and can be captured in a graph.
template <class Rule, class... T>
class Optimizer {
  public:
    using Options = typename Rule::Options;
    using Engine = typename LayerOf<std::tuple_element_t<0, std::tuple<T...>>>::Engine;
    static constexpr std::size_t state_count = Rule::state_names.size();

    /// @throws std::invalid_argument for hyper-parameters out of range, or two groups with one path
    Optimizer(const Groups<T...>& groups, const Options& options, std::vector<ParamGroup> param_groups,
              SourceLocation where)
        : groups_(groups), options_(options), param_groups_(std::move(param_groups)) {
        validate(options, where);
        for (const ParamGroup& group : param_groups_) {
            detail::validate_not_negative("ParamGroup", "learning_rate_scale", group.learning_rate_scale, where);
            if (group.weight_decay) {
                detail::validate_not_negative("ParamGroup", "weight_decay", *group.weight_decay, where);
            }
            if (!group.matches) {
                throw_invalid_argument(where, "ParamGroup: matches is empty, expected a function");
            }
        }
        std::set<std::string> paths;
        groups_.for_each_indexed([&](auto& layer, auto part, std::size_t) {
            if (!paths.insert(layer.path()).second) {
                throw_invalid_argument(where, "optimizer: two groups have the path '", layer.path(), "'");
            }
            auto& states = std::get<decltype(part)::value>(states_);
            states.emplace_back();
            make_state(layer, states.back());
        });
        auto& context = groups_.context();
        engine_options_ = EngineTable<Engine, Options>(context, options_);
        scalars_ = EngineTable<Engine, StepScalars>(context, StepScalars{});
    }

    const Options& options() const noexcept { return options_; }
    /// For schedules; takes effect with the next step.
    void set_learning_rate(double learning_rate, SourceLocation where = SourceLocation::current()) {
        Options changed = options_;
        changed.learning_rate = learning_rate;
        validate(changed, where);
        options_ = changed;
        Engine::Kernels::run(groups_.context().compute_stream(),
                             SetOptions<Options>{changed, engine_options_.data()});
    }

    /// Updates every group from its reduced gradients and writes the next gather's source, in one pass.
    /// With a loss scale, a step whose gradients overflowed changes nothing but the scale; without a clip
    /// coefficient the norm is computed for that. Local work then; collective over the world otherwise.
    /// @throws UsageError when the gradients are another model's, were consumed, or a window is open
    template <class X>
    void step(X&& reduced, SourceLocation where = SourceLocation::current()) {
        check_type<X>();
        if constexpr (accepts<X>) {
            step(std::forward<X>(reduced),
                 reduced.loss_scale() == nullptr ? ClipCoefficient{} : no_clip(global_norm(reduced, where)), where);
        }
    }
    template <class X>
    void step(X&& reduced, ClipCoefficient coefficient, SourceLocation /*where*/ = SourceLocation::current()) {
        check_type<X>();
        if constexpr (accepts<X>) {
            const Reduced<T...> consumed(std::forward<X>(reduced));
            if (!(consumed.groups() == groups_)) {
                throw UsageError("optimizer step: these gradients belong to another model of the same type");
            }
            check_parts(std::index_sequence_for<T...>{});
            groups_.for_each([](auto& layer) { layer.state().parameters().begin_update(); });
            Engine::Kernels::run(
                groups_.context().compute_stream(),
                BeginStep{consumed.divisor_scale(), coefficient, consumed.loss_scale(), scalars_.data()});
            groups_.for_each_indexed([&](auto& layer, auto part, std::size_t index) {
                update(layer, std::get<decltype(part)::value>(states_)[index]);
            });
        }
    }

    /// What this rank holds of every optimizer state.
    std::vector<ShardInfo> shards() {
        std::vector<ShardInfo> list;
        groups_.for_each_indexed([&](auto& layer, auto part, std::size_t index) {
            if (!layer.trainable()) { return; }
            auto& state = layer.state();
            using Layer = std::remove_cvref_t<decltype(layer)>;
            const std::size_t copies = Layer::Policy::optimizer == Placement::sharded
                                           ? state.replica()
                                           : state.geometry().shard_index + state.geometry().shards * state.replica();
            auto& mine = std::get<decltype(part)::value>(states_)[index];
            for (std::size_t s = 0; s < state_count; ++s) {
                using Element = typename State<Layer>::Element;
                list_shards(state, Rule::state_names[s], std::span<const Element>(mine.buffers[s].span()),
                            state.geometry().updated.begin, copies, list);
            }
        });
        return list;
    }

    /// Steps that the groups of part I have taken, for checkpoints and tests. Waits for the compute stream.
    template <std::size_t I>
    std::uint64_t steps(std::size_t index = 0) const {
        return std::get<I>(states_)[index].progress.read().steps;
    }

  protected:
    /// Buffers first: the tables end before them, and wait for the kernels that use both.
    template <class Layer>
    struct State {
        using Element = Arithmetic<typename Layer::Precision::Master>;
        using Update = typename Rule::template Update<Element>;
        std::array<typename Layer::Engine::template Buffer<Element>, state_count> buffers{};
        EngineTable<Engine, typename Rule::Progress> progress;
        EngineTable<Engine, UpdateChoice> choices;
        EngineTable<Engine, Update> updates;  // one for each choice
        EngineTable<Engine, UpdateRun> runs;  // of what this rank updates
    };

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

    template <std::size_t... I>
    void check_parts(std::index_sequence<I...>) const {
        if (((groups_.template part_size<I>() != std::get<I>(states_).size()) || ...)) {
            throw UsageError("optimizer step: a range of the model has grown or shrunk since the optimizer was made");
        }
    }

    template <class Layer>
    void make_state(Layer& layer, State<Layer>& mine) {
        auto& context = layer.context();
        mine.progress = {context, typename Rule::Progress{}};
        if (!layer.trainable()) { return; }
        auto& state = layer.state();
        const IndexRange updated = state.geometry().updated;
        for (auto& buffer : mine.buffers) {
            buffer = context.template buffer<typename State<Layer>::Element>(
                Rule::needs_state(options_) ? updated.size() : 0);
        }
        std::vector<UpdateChoice> choices;
        std::vector<UpdateRun> runs;
        for_each_segment(state.layout(), updated, [&](Segment segment) {
            if (state.frozen()[segment.parameter]) { return; }
            const UpdateChoice choice = choice_of(layer.path(), Layer::Group::names[segment.parameter]);
            const auto known = std::find(choices.begin(), choices.end(), choice);
            const auto number = static_cast<std::uint32_t>(known - choices.begin());
            if (known == choices.end()) { choices.push_back(choice); }
            const IndexRange range = relative_to(segment.flat, updated.begin);
            runs.push_back({range.begin, range.end, number});
        });
        using Update = typename State<Layer>::Update;
        mine.choices = {context, std::span<const UpdateChoice>(choices)};
        mine.updates = {context, std::span<const Update>(std::vector<Update>(choices.size()))};
        mine.runs = {context, std::span<const UpdateRun>(runs)};
    }
    UpdateChoice choice_of(std::string_view path, std::string_view parameter) const {
        for (const ParamGroup& group : param_groups_) {
            if (!group.matches(path, parameter)) { continue; }
            return {group.learning_rate_scale, group.weight_decay.value_or(options_.weight_decay)};
        }
        return {1, options_.weight_decay};
    }

    template <class Layer>
    void update(Layer& layer, State<Layer>& mine) {
        auto& state = layer.state();
        if (!layer.trainable() || state.step().skipped()) { return; }
        state.gradients().wait();
        using Precision = typename Layer::Precision;
        using Element = typename State<Layer>::Element;
        using Kernels = typename Engine::Kernels;
        const auto stream = layer.context().compute_stream();
        Kernels::run(stream, BeginUpdate<Rule, Element>{scalars_.data(), engine_options_.data(), mine.progress.data(),
                                                        mine.choices.span(), mine.updates.data()});
        const IndexRange updated = state.geometry().updated;
        const std::size_t origin = updated.begin - state.gradients().reduced_range().begin;
        std::array<std::span<Element>, state_count> states;
        for (std::size_t s = 0; s < state_count; ++s) { states[s] = mine.buffers[s].span(); }
        using Gather = typename Precision::Gather;
        using Reduction = typename Precision::Reduction;
        Rule::template run<Kernels>(
            stream, std::span<const UpdateRun>(mine.runs.span()),
            static_cast<const typename State<Layer>::Update*>(mine.updates.data()), &scalars_.data()->skip,
            state.parameters().master(),
            Precision::has_master ? state.parameters().gather_source() : std::span<Gather>{},
            std::span<const Reduction>(state.gradients().reduced().subspan(origin, updated.size())), states);
        state.parameters().end_update();
    }

    Groups<T...> groups_;
    Options options_;
    std::vector<ParamGroup> param_groups_;
    std::tuple<std::vector<State<LayerOf<T>>>...> states_;
    EngineTable<Engine, Options> engine_options_;
    EngineTable<Engine, StepScalars> scalars_;
};

}  // namespace shardkit
