// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <shardkit/detail/validate_number.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/sharded/list_shards.hpp>

namespace shardkit {

/// What every optimizer shares: its states (one buffer per state and group, over the elements that this rank
/// updates), parameter groups, loss-scale protocol and the walk over a model. `Rule` supplies the arithmetic:
///   Rule::Options; Rule::state_names; Rule::Progress (per group: step count and running products);
///   Rule::advance(progress, options) before a group's update;
///   Rule::update<Layer>(stream, progress, options, scale, spans of one segment).
template <class Rule, class... T>
class Optimizer {
  public:
    using Options = typename Rule::Options;
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
    }

    const Options& options() const noexcept { return options_; }
    /// For schedules; takes effect with the next step.
    void set_learning_rate(double learning_rate, SourceLocation where = SourceLocation::current()) {
        Options changed = options_;
        changed.learning_rate = learning_rate;
        validate(changed, where);
        options_ = changed;
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
            LossScale* const loss_scale = consumed.loss_scale();
            if (loss_scale != nullptr) {
                loss_scale->update(coefficient.found_inf);
                if (coefficient.found_inf == FoundInf::yes) { return; }
            }
            groups_.for_each_indexed([&](auto& layer, auto part, std::size_t index) {
                update(layer, std::get<decltype(part)::value>(states_)[index], consumed.scale() * coefficient.value);
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

    /// Steps that the groups of part I have taken, for checkpoints and tests.
    template <std::size_t I>
    std::uint64_t steps(std::size_t index = 0) const {
        return std::get<I>(states_)[index].progress.steps;
    }

  protected:
    template <class Layer>
    struct State {
        using Element = Arithmetic<typename Layer::Precision::Master>;
        typename Rule::Progress progress{};
        std::array<typename Layer::Engine::template Buffer<Element>, state_count> buffers{};
        struct Choice {
            double learning_rate_scale = 1;
            std::optional<double> weight_decay{};
        };
        std::array<Choice, Layer::Group::count> choices{};
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
    void make_state(Layer& layer, State<Layer>& state) {
        if (layer.trainable()) {
            const std::size_t numel = layer.state().geometry().updated.size();
            for (auto& buffer : state.buffers) {
                buffer = typename Layer::Engine::template Buffer<typename State<Layer>::Element>(
                    Rule::needs_state(options_) ? numel : 0);
            }
        }
        for (std::size_t p = 0; p < Layer::Group::count; ++p) {
            for (const ParamGroup& group : param_groups_) {
                if (!group.matches(layer.path(), Layer::Group::names[p])) { continue; }
                state.choices[p] = {group.learning_rate_scale, group.weight_decay};
                break;
            }
        }
    }

    template <class Layer>
    void update(Layer& layer, State<Layer>& mine, double scale) {
        auto& state = layer.state();
        if (!layer.trainable() || state.step().skipped()) { return; }
        state.gradients().wait();
        Rule::advance(mine.progress, options_);
        const std::size_t origin = state.geometry().updated.begin;
        const std::size_t gradient_origin = state.gradients().reduced_range().begin;
        const auto gradient = state.gradients().reduced();
        const auto master = state.parameters().master();
        const auto gathered = state.parameters().gather_source();
        for (const Segment& segment : state.updated_segments()) {
            Options options = options_;
            const auto& choice = mine.choices[segment.parameter];
            options.learning_rate *= choice.learning_rate_scale;
            options.weight_decay = choice.weight_decay.value_or(options.weight_decay);
            const std::size_t at = segment.flat.begin - origin;
            const std::size_t count = segment.flat.size();
            using Precision = typename Layer::Precision;
            using Element = typename State<Layer>::Element;
            std::array<std::span<Element>, state_count> states;
            for (std::size_t s = 0; s < state_count; ++s) {
                const auto whole = mine.buffers[s].span();
                states[s] = whole.empty() ? whole : whole.subspan(at, count);
            }
            using Gather = typename Precision::Gather;
            Rule::template update<typename Layer::Engine::Kernels>(
                layer.context().compute_stream(), mine.progress, options, scale, master.subspan(at, count),
                Precision::has_master ? gathered.subspan(at, count) : std::span<Gather>{},
                std::span<const typename Precision::Reduction>(
                    gradient.subspan(segment.flat.begin - gradient_origin, count)),
                states);
        }
        state.parameters().end_update();
    }

    Groups<T...> groups_;
    Options options_;
    std::vector<ParamGroup> param_groups_;
    std::tuple<std::vector<State<LayerOf<T>>>...> states_;
};

}  // namespace shardkit
