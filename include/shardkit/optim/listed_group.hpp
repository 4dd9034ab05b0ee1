// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include <shardkit/comm/stream.hpp>
#include <shardkit/memory/stored_elements.hpp>
#include <shardkit/optim/any_rule.hpp>
#include <shardkit/optim/group_optimizer.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/sharded/group_geometry.hpp>

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// A group that is trained, in a step of its optimizer.
struct TrainedGroup {
    GroupOptimizer* group;
    Group* state;
    const std::uint64_t* steps;  ///< which step it is, in the engine's memory
    bool taken;                  ///< whether the group takes part in the step
};

/// Returns a group's update without the gradient, which may lie in a leased buffer. What it reads of the step lies in
/// the engine's memory or on the host.
inline AnyUpdateWork work_at_rest(const TrainedGroup& each, const AnyRuleUpdate* updates, const std::uint64_t* steps,
                                  const std::uint32_t* skip) {
    auto& parameters = each.state->parameters();
    const GroupGeometry& geometry = each.state->geometry();
    const bool keeps_master = geometry.keeps_master();
    const StoredElements gathered = parameters.gather_source();
    const StoredElements master = keeps_master ? parameters.master() : gathered;
    const auto& rounding = geometry.stochastic_rounding;
    AnyUpdateWork work{
        .rule = each.group->beginning().rule,
        .conversions = &each.state->elements().on_host,
        .load_gradients = each.state->elements().on_host.load_sums,
        .ranges = each.group->ranges(),
        .updates = updates,
        .skip = skip,
        .count = master.size(),
        .arithmetic = geometry.arithmetic(),
        .updated = master.type(),
        .gathers = gathered.type(),
        .gradients = each.state->elements().reduction,
        .codes = geometry.sizes.codes,
        .rounds = rounding.has_value(),
        .master = master.data(),
        .gathered = keeps_master ? gathered.data() : nullptr,
        .rest = static_cast<std::uint16_t*>(parameters.halves().data()),
        .scales = keeps_master ? parameters.updated_scales().data() : nullptr,
        .seed = rounding ? rounding->seed : 0,
        .state_seed = each.group->state_seed(),
        .steps = steps,
        .format = each.group->beginning().rule->states().format,
        .state_count = each.group->states_used(),
    };
    std::copy_n(each.group->state_spans(), work.state_count, work.states.begin());
    return work;
}
/// Returns it with the gradient.
inline AnyUpdateWork work_in_step(const TrainedGroup& each, const AnyRuleUpdate* updates, const std::uint32_t* skip) {
    AnyUpdateWork work = work_at_rest(each, updates, each.steps, skip);
    work.gradient = each.group->gradient(*each.state).data();
    return work;
}

/// Makes the update of one group, which is not offloaded, in a step. `work` is as work_at_rest says.
inline void run_update(const TrainedGroup& each, AnyUpdateWork& work, const Stream& stream,
                       unsigned long long capture) {
    each.state->gradients().wait();
    work.gradient = each.group->gradient(*each.state).data();
    work.give(stream);
    each.state->parameters().end_update(stream.record(), capture);
}

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
