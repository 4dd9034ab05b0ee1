// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include <shardkit/detail/concat.hpp>
#include <shardkit/layout/segments.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/update.hpp>
#include <shardkit/optim/update_table.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/sharded/group_buffer.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/sharded/group_state.hpp>
#include <shardkit/sharded/shard_info.hpp>

namespace shardkit::detail {

/// What an optimizer keeps for one group on one rank, and the group's update: states over the elements that this rank
/// updates, and a table of which elements take which update of the optimizer's. Compiled once for all groups of an
/// engine and a master type. `Rule`: an OptimizerRule.
template <class Rule, class Engine, class ElementType>
class GroupOptimizer {
  public:
    using Element = ElementType;
    using Options = typename Rule::Options;
    using Update = typename Rule::template Update<Element>;
    static constexpr std::size_t state_count = Rule::state_names.size();

    /// Takes its place among `updates`.
    GroupOptimizer(Context<Engine>& context, const GroupGeometry& group, const Options& options,
                   std::span<const ParamGroup> param_groups, UpdateTable<Rule, Engine, Element>& updates);
    GroupOptimizer(GroupOptimizer&&) noexcept;
    GroupOptimizer& operator=(GroupOptimizer&&) noexcept;
    ~GroupOptimizer();

    /// One more behind the others.
    static void append(std::vector<GroupOptimizer>& optimizers, Context<Engine>& context, const GroupGeometry& group,
                       const Options& options, std::span<const ParamGroup> param_groups,
                       UpdateTable<Rule, Engine, Element>& updates);

    std::size_t states_used() const noexcept { return states_used_; }
    /// Which elements, relative to those that this rank updates, take which of the optimizer's updates; sorted.
    /// Parameters that lie side by side and take the same one are one range. The engine's memory.
    std::span<const UpdateRange> ranges() const noexcept { return ranges_.span(); }

    /// What a step of `state`, this group's, reads and writes with the rule's first N states.
    template <std::size_t N, class Precision>
    auto spans(GroupState<Engine, Precision>& state) const {
        UpdateSpans<typename Precision::Master, typename Precision::Gather, typename Precision::Reduction, N> spans;
        const IndexRange updated = state.geometry().updated;
        const std::size_t origin = updated.begin - state.gradients().reduced_range().begin;
        const std::span<const typename Precision::Reduction> reduced = state.gradients().reduced();
        spans.master = state.parameters().master();
        if constexpr (Precision::has_master) { spans.gathered = state.parameters().gather_source(); }
        spans.gradient = reduced.subspan(origin, updated.size());
        for (std::size_t s = 0; s < N; ++s) { spans.states[s] = states_[s].span(); }
        return spans;
    }

    /// What this rank holds of every state.
    void list(const GroupGeometry& group, Placement placement, std::vector<ShardInfo>& shards) const {
        if (!group.trainable) { return; }
        for (std::size_t s = 0; s < states_used_; ++s) {
            list_shards(group, Rule::state_names[s], placement, std::span<const Element>(states_[s].span()),
                        group.updated.begin, shards);
        }
    }

    /// State number s of the elements that this rank updates.
    std::span<Element> state(std::size_t s) const noexcept { return states_[s].span(); }

    /// Its place in the UpdateTable; none where every parameter is frozen.
    std::optional<std::size_t> number() const noexcept { return number_; }

  private:
    /// Whether the rule's update can be called with `count` states; compiled for N states and more.
    template <std::size_t N = 0>
    static constexpr bool update_takes(std::size_t count) {
        if (count == N) { return UpdateOf<Update, Element, N>; }
        if constexpr (N < state_count) { return update_takes<N + 1>(count); }
        return false;
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

    // Buffers first: the table ends before them, and waits for the kernels that use both.
    std::array<typename Engine::template Buffer<Element>, state_count> states_{};
    std::size_t states_used_ = 0;
    EngineTable<Engine, UpdateRange> ranges_;  // of what this rank updates
    std::optional<std::size_t> number_;
};

template <class Rule, class Engine, class ElementType>
GroupOptimizer<Rule, Engine, ElementType>::GroupOptimizer(Context<Engine>& context, const GroupGeometry& group,
                                                          const Options& options,
                                                          std::span<const ParamGroup> param_groups,
                                                          UpdateTable<Rule, Engine, Element>& updates) {
    if (!group.trainable) { return; }
    states_used_ = Rule::state_count(options);
    if (!update_takes(states_used_)) {
        throw std::logic_error(concat("optimizer: Rule::state_count is ", states_used_,
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
        const auto number = updates.size() + static_cast<std::uint32_t>(known - hypers.begin());
        if (known == hypers.end()) { hypers.push_back(chosen); }
        const IndexRange range = relative_to(segment.flat, group.updated.begin);
        append_merged(ranges, UpdateRange{range.begin, range.end, number},
                      !ranges.empty() && ranges.back().update == number);
    });
    number_ = updates.add(hypers);
    ranges_ = {context, std::span<const UpdateRange>(ranges.data(), ranges.size())};
}

template <class Rule, class Engine, class ElementType>
GroupOptimizer<Rule, Engine, ElementType>::GroupOptimizer(GroupOptimizer&&) noexcept = default;
template <class Rule, class Engine, class ElementType>
GroupOptimizer<Rule, Engine, ElementType>& GroupOptimizer<Rule, Engine, ElementType>::operator=(
    GroupOptimizer&&) noexcept = default;
template <class Rule, class Engine, class ElementType>
GroupOptimizer<Rule, Engine, ElementType>::~GroupOptimizer() = default;

template <class Rule, class Engine, class ElementType>
void GroupOptimizer<Rule, Engine, ElementType>::append(std::vector<GroupOptimizer>& optimizers,
                                                       Context<Engine>& context, const GroupGeometry& group,
                                                       const Options& options,
                                                       std::span<const ParamGroup> param_groups,
                                                       UpdateTable<Rule, Engine, Element>& updates) {
    optimizers.emplace_back(context, group, options, param_groups, updates);
}

}  // namespace shardkit::detail
