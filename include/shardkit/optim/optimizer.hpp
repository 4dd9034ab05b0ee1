// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <shardkit/optim/begin_step.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/group_update.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/set_options.hpp>
#include <shardkit/rank/engine_table.hpp>

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

    /// @throws std::invalid_argument for hyper-parameters out of range, or two groups with one path
    Optimizer(const Groups<T...>& groups, const Options& options, std::vector<ParamGroup> param_groups,
              SourceLocation where)
        : groups_(groups), options_(options), param_groups_(std::move(param_groups)) {
        validate(options, where);
        for (const ParamGroup& group : param_groups_) { validate(group, where); }
        std::set<std::string> paths;
        groups_.for_each_indexed([&](auto& layer, auto part, std::size_t) {
            if (!paths.insert(layer.path()).second) {
                throw_invalid_argument(where, "optimizer: two groups have the path '", layer.path(), "'");
            }
            std::get<decltype(part)::value>(updates_).emplace_back(layer.context(), layer.state().geometry(),
                                                                   options_, param_groups_);
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
    void step(X&& reduced, ClipCoefficient coefficient, SourceLocation where = SourceLocation::current()) {
        check_type<X>();
        if constexpr (accepts<X>) {
            const Reduced<T...> consumed(std::forward<X>(reduced));
            if (!(consumed.groups() == groups_)) {
                throw UsageError("optimizer step: these gradients belong to another model of the same type");
            }
            check_parts(std::index_sequence_for<T...>{});
            groups_.context().compare_calls(where);
            groups_.for_each([](auto& layer) { layer.state().parameters().begin_update(); });
            Engine::Kernels::run(
                groups_.context().compute_stream(),
                BeginStep{consumed.divisor_scale(), coefficient, consumed.loss_scale(), scalars_.data()});
            groups_.for_each_indexed([&](auto& layer, auto part, std::size_t index) {
                std::get<decltype(part)::value>(updates_)[index].run(layer.state(), scalars_.data(),
                                                                     engine_options_.data());
            });
        }
    }

    /// What this rank holds of every optimizer state.
    std::vector<ShardInfo> shards() {
        std::vector<ShardInfo> list;
        groups_.for_each_indexed([&](auto& layer, auto part, std::size_t index) {
            std::get<decltype(part)::value>(updates_)[index].list(layer.state().geometry(), layer.policy().optimizer,
                                                                  list);
        });
        return list;
    }

    /// Steps that the groups of part I have taken, for checkpoints and tests. Waits for the compute stream.
    template <std::size_t I>
    std::uint64_t steps(std::size_t index = 0) const {
        return std::get<I>(updates_)[index].steps();
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

    template <std::size_t... I>
    void check_parts(std::index_sequence<I...>) const {
        if (((groups_.template part_size<I>() != std::get<I>(updates_).size()) || ...)) {
            throw UsageError("optimizer step: a range of the model has grown or shrunk since the optimizer was made");
        }
    }

    template <class Layer>
    using UpdateOf = GroupUpdate<Rule, Engine, Arithmetic<typename Layer::Precision::Master>>;

    Groups<T...> groups_;
    Options options_;
    std::vector<ParamGroup> param_groups_;
    std::tuple<std::vector<UpdateOf<LayerOf<T>>>...> updates_;
    EngineTable<Engine, Options> engine_options_;
    EngineTable<Engine, StepScalars> scalars_;
};

}  // namespace shardkit
