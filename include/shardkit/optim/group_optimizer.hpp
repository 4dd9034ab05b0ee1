// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include <shardkit/detail/concat.hpp>
#include <shardkit/layout/segments.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/step_work.hpp>
#include <shardkit/optim/update.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/sharded/group_buffer.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/sharded/group_state.hpp>
#include <shardkit/sharded/shard_info.hpp>

namespace shardkit::detail {

/// What an optimizer keeps for one group on one rank, and the group's update: states over the elements that this rank
/// updates, and tables of which elements take which parameter group's numbers. Compiled once for all groups of an
/// engine and a master type. `Rule`: an OptimizerRule.
template <class Rule, class Engine, class ElementType>
class GroupOptimizer {
  public:
    using Element = ElementType;
    using Options = typename Rule::Options;
    using Update = typename Rule::template Update<Element>;
    static constexpr std::size_t state_count = Rule::state_names.size();

    GroupOptimizer(Context<Engine>& context, const GroupGeometry& group, const Options& options,
                   std::span<const ParamGroup> param_groups)
        : progress_(context, typename Rule::Progress{}) {
        if (!group.trainable) { return; }
        states_used_ = Rule::state_count(options);
        if (!update_takes(states_used_)) {
            throw std::logic_error(detail::concat("optimizer: Rule::state_count is ", states_used_,
                                                  ", a number of states that Rule::Update does not take"));
        }
        for (std::size_t s = 0; s < states_used_; ++s) {
            states_[s] = group_buffer<Element>(context, group.path, Rule::state_names[s], group.updated.size());
        }
        std::vector<ParameterHypers> hypers;
        std::vector<UpdateRange> ranges;
        for_each_segment(group.parameters, group.updated, [&](Segment segment) {
            const PlacedParameter& parameter = group.parameters[segment.parameter];
            if (parameter.frozen) { return; }
            const ParameterHypers chosen = hypers_of(group.path, parameter, options, param_groups);
            const auto known = std::find(hypers.begin(), hypers.end(), chosen);
            const auto number = static_cast<std::uint32_t>(known - hypers.begin());
            if (known == hypers.end()) { hypers.push_back(chosen); }
            const IndexRange range = relative_to(segment.flat, group.updated.begin);
            ranges.push_back({range.begin, range.end, number});
        });
        hypers_ = {context, std::span<const ParameterHypers>(hypers.data(), hypers.size())};
        updates_ = {context, std::span<const Update>(std::vector<Update>(hypers.size()))};
        ranges_ = {context, std::span<const UpdateRange>(ranges.data(), ranges.size())};
    }

    /// One step of the group's parameters from its reduced gradients, on the compute stream.
    /// `scalars`, `options`: in the engine's memory.
    template <class Precision>
    void update(GroupState<Engine, Precision>& state, const StepScalars* scalars, const Options* options) {
        if (!state.trainable() || state.step().skipped()) { return; }
        state.gradients().wait();
        Engine::Kernels::run_once(
            state.context().compute_stream(),
            BeginUpdate<Rule, Element>{scalars, options, progress_.data(), hypers_.span(), updates_.data()});
        update_elements(state, &scalars->skip);
        state.parameters().end_update();
    }

    /// What this rank holds of every state.
    void list(const GroupGeometry& group, Placement placement, std::vector<ShardInfo>& shards) const {
        if (!group.trainable) { return; }
        for (std::size_t s = 0; s < states_used_; ++s) {
            list_shards(group, Rule::state_names[s], placement, std::span<const Element>(states_[s].span()),
                        group.updated.begin, shards);
        }
    }

    /// Steps that the group has taken. Waits for the compute stream.
    std::uint64_t steps() const { return progress_.read().steps; }

  private:
    /// Whether the rule's update can be called with `count` states; compiled for N states and more.
    template <std::size_t N = 0>
    static constexpr bool update_takes(std::size_t count) {
        if (count == N) { return UpdateOf<Update, Element, N>; }
        if constexpr (N < state_count) { return update_takes<N + 1>(count); }
        return false;
    }
    template <std::size_t N = 0, class Precision>
    void update_elements(GroupState<Engine, Precision>& state, const std::uint32_t* skip) {
        if constexpr (UpdateOf<Update, Element, N>) {
            if (states_used_ == N) { update_with<N>(state, skip); }
        }
        if constexpr (N < state_count) { update_elements<N + 1>(state, skip); }
    }
    template <std::size_t N, class Precision>
    void update_with(GroupState<Engine, Precision>& state, const std::uint32_t* skip) {
        using Spans =
            UpdateSpans<typename Precision::Master, typename Precision::Gather, typename Precision::Reduction, N>;
        const IndexRange updated = state.geometry().updated;
        const std::size_t origin = updated.begin - state.gradients().reduced_range().begin;
        const std::span<const typename Precision::Reduction> reduced = state.gradients().reduced();
        Spans spans;
        spans.master = state.parameters().master();
        if constexpr (Precision::has_master) { spans.gathered = state.parameters().gather_source(); }
        spans.gradient = reduced.subspan(origin, updated.size());
        for (std::size_t s = 0; s < N; ++s) { spans.states[s] = states_[s].span(); }
        Engine::Kernels::update(state.context().compute_stream(), std::span<const UpdateRange>(ranges_.span()),
                                static_cast<const Update*>(updates_.data()), skip, spans);
    }

    static ParameterHypers hypers_of(std::string_view path, const PlacedParameter& parameter, const Options& options,
                                     std::span<const ParamGroup> param_groups) {
        const double weight_decay = parameter.decay ? options.weight_decay : 0;
        for (const ParamGroup& group : param_groups) {
            if (!group.matches(path, parameter.name)) { continue; }
            return {group.learning_rate_scale, group.weight_decay.value_or(weight_decay)};
        }
        return {1, weight_decay};
    }

    // Buffers first: the tables end before them, and wait for the kernels that use both.
    std::array<typename Engine::template Buffer<Element>, state_count> states_{};
    std::size_t states_used_ = 0;
    detail::EngineTable<Engine, typename Rule::Progress> progress_;
    detail::EngineTable<Engine, ParameterHypers> hypers_;
    detail::EngineTable<Engine, Update> updates_;      // one for each of the hypers
    detail::EngineTable<Engine, UpdateRange> ranges_;  // of what this rank updates
};

}  // namespace shardkit::detail
