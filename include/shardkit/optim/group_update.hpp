// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <shardkit/layout/segments.hpp>
#include <shardkit/optim/begin_update.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/step_scalars.hpp>
#include <shardkit/optim/update_choice.hpp>
#include <shardkit/optim/update_run.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/sharded/group_buffer.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/sharded/group_state.hpp>
#include <shardkit/sharded/shard_info.hpp>

namespace shardkit {

/// What an optimizer keeps for one group on one rank, and the group's update: states over the elements that this rank
/// updates, and tables of which elements take which parameter group's numbers. Compiled once for all groups of an
/// engine and a master type. `Rule`: see Optimizer.
template <class Rule, class Engine, class ElementType>
class GroupUpdate {
  public:
    using Element = ElementType;
    using Options = typename Rule::Options;
    using Update = typename Rule::template Update<Element>;
    static constexpr std::size_t state_count = Rule::state_names.size();

    GroupUpdate(Context<Engine>& context, const GroupGeometry& group, const Options& options,
                std::span<const ParamGroup> param_groups)
        : progress_(context, typename Rule::Progress{}) {
        if (!group.trainable) { return; }
        for (std::size_t s = 0; s < state_count; ++s) {
            states_[s] = group_buffer<Element>(context, group.path, Rule::state_names[s],
                                               Rule::needs_state(options) ? group.updated.size() : 0);
        }
        std::vector<UpdateChoice> choices;
        std::vector<UpdateRun> runs;
        for_each_segment(group.ranges, group.updated, [&](Segment segment) {
            if (group.frozen[segment.parameter]) { return; }
            const UpdateChoice choice = choice_of(group.path, group.names[segment.parameter], options, param_groups);
            const auto known = std::find(choices.begin(), choices.end(), choice);
            const auto number = static_cast<std::uint32_t>(known - choices.begin());
            if (known == choices.end()) { choices.push_back(choice); }
            const IndexRange range = relative_to(segment.flat, group.updated.begin);
            runs.push_back({range.begin, range.end, number});
        });
        choices_ = {context, std::span<const UpdateChoice>(choices.data(), choices.size())};
        updates_ = {context, std::span<const Update>(std::vector<Update>(choices.size()))};
        runs_ = {context, std::span<const UpdateRun>(runs.data(), runs.size())};
    }

    /// One step of the group's parameters from its reduced gradients, on the compute stream.
    /// `scalars`, `options`: in the engine's memory.
    template <class Precision>
    void run(GroupState<Engine, Precision>& state, const StepScalars* scalars, const Options* options) {
        if (!state.trainable() || state.step().skipped()) { return; }
        state.gradients().wait();
        using Kernels = typename Engine::Kernels;
        using Gather = typename Precision::Gather;
        const auto stream = state.context().compute_stream();
        Kernels::run(
            stream, BeginUpdate<Rule, Element>{scalars, options, progress_.data(), choices_.span(), updates_.data()});
        const IndexRange updated = state.geometry().updated;
        const std::size_t origin = updated.begin - state.gradients().reduced_range().begin;
        std::array<std::span<Element>, state_count> states;
        for (std::size_t s = 0; s < state_count; ++s) { states[s] = states_[s].span(); }
        const std::span<const typename Precision::Reduction> reduced = state.gradients().reduced();
        Rule::template run<Kernels>(stream, std::span<const UpdateRun>(runs_.span()),
                                    static_cast<const Update*>(updates_.data()), &scalars->skip,
                                    state.parameters().master(),
                                    Precision::has_master ? state.parameters().gather_source() : std::span<Gather>{},
                                    reduced.subspan(origin, updated.size()), states);
        state.parameters().end_update();
    }

    /// What this rank holds of every state.
    void list(const GroupGeometry& group, Placement placement, std::vector<ShardInfo>& shards) const {
        if (!group.trainable) { return; }
        for (std::size_t s = 0; s < state_count; ++s) {
            list_shards(group, Rule::state_names[s], placement, std::span<const Element>(states_[s].span()),
                        group.updated.begin, shards);
        }
    }

    /// Steps that the group has taken. Waits for the compute stream.
    std::uint64_t steps() const { return progress_.read().steps; }

  private:
    static UpdateChoice choice_of(std::string_view path, std::string_view parameter, const Options& options,
                                  std::span<const ParamGroup> param_groups) {
        for (const ParamGroup& group : param_groups) {
            if (!group.matches(path, parameter)) { continue; }
            return {group.learning_rate_scale, group.weight_decay.value_or(options.weight_decay)};
        }
        return {1, options.weight_decay};
    }

    // Buffers first: the tables end before them, and wait for the kernels that use both.
    std::array<typename Engine::template Buffer<Element>, state_count> states_{};
    detail::EngineTable<Engine, typename Rule::Progress> progress_;
    detail::EngineTable<Engine, UpdateChoice> choices_;
    detail::EngineTable<Engine, Update> updates_;  // one for each choice
    detail::EngineTable<Engine, UpdateRun> runs_;  // of what this rank updates
};

}  // namespace shardkit
