// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/plan/plan.hpp>
#include <shardkit/policy/state_format.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/plan_model.hpp>

namespace shardkit {

/// Returns the descriptions of a model's groups with the states that an optimizer, or the parts of one, keep of each:
/// none of a group that it does not update. They refer to the groups' paths.
template <class Engine>
std::vector<planner::GroupDescription> describe_groups(const Groups<Engine>& model, Optimizer<Engine>& optimizer,
                                                       SourceLocation where = SourceLocation::current()) {
    const auto states = detail::Access::kept_states(optimizer, where);
    std::map<std::uint64_t, OptimizerStates> kept;
    std::size_t number = 0;
    for (detail::Group<Engine>& group : detail::Access::each(optimizer.model(), where)) {
        kept.emplace(group.identity(), states[number++]);
    }
    std::vector<planner::GroupDescription> groups = describe_groups(model, where);
    number = 0;
    for (detail::Group<Engine>& group : detail::Access::each(model, where)) {
        const auto found = kept.find(group.identity());
        groups[number++].optimizer_states = found == kept.end() ? OptimizerStates(0) : found->second;
    }
    return groups;
}

/// Returns the plan of a model and its optimizer, whose states it counts; PlanOptions::optimizer_states says nothing
/// then. What an optimizer of whole matrices holds beside its states is MatrixOptimizer::bytes_of_exchange.
template <class Engine>
Plan plan(const Groups<Engine>& model, Optimizer<Engine>& optimizer, planner::PlanOptions options = {},
          SourceLocation where = SourceLocation::current()) {
    return detail::plan_groups(describe_groups(model, optimizer, where), model, options, where);
}

}  // namespace shardkit
