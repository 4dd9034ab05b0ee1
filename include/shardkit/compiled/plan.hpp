// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <shardkit/compiled/model.hpp>
#include <shardkit/compiled/optimizers.hpp>
#include <shardkit/compiled/parts_interface.hpp>
#include <shardkit/plan/plan.hpp>

// What plan/plan_model.hpp and plan/model_summary.hpp are in the compiled form.

namespace shardkit SHARDKIT_BUILD {

/// Returns the descriptions of a model's groups, in order. They refer to the groups' paths.
template <class Engine>
std::vector<planner::GroupDescription> describe_groups(const Groups<Engine>& model,
                                                       SourceLocation where = SourceLocation::current()) {
    std::vector<planner::GroupDescription> groups;
    const compiled::Groups& core = model.core(where);
    compiled::parts_of(core, where).describe(core, nullptr, groups, where);
    return groups;
}
/// Returns the descriptions with the states that an optimizer keeps of each group.
template <class Engine>
std::vector<planner::GroupDescription> describe_groups(const Groups<Engine>& model, Optimizer<Engine>& optimizer,
                                                       SourceLocation where = SourceLocation::current()) {
    std::vector<planner::GroupDescription> groups;
    const compiled::Groups& core = model.core(where);
    compiled::parts_of(core, where).describe(core, &optimizer.core(where), groups, where);
    return groups;
}

/// Returns the plan of a model that exists: see plan/plan_model.hpp.
template <class Engine>
Plan plan(const Groups<Engine>& model, const planner::PlanOptions& options = {},
          SourceLocation where = SourceLocation::current()) {
    const compiled::Groups& core = model.core(where);
    return compiled::parts_of(core, where).plan(core, nullptr, options, where);
}
/// Returns the plan of a model and its optimizer: see plan/model_summary.hpp.
template <class Engine>
Plan plan(const Groups<Engine>& model, Optimizer<Engine>& optimizer, const planner::PlanOptions& options = {},
          SourceLocation where = SourceLocation::current()) {
    const compiled::Groups& core = model.core(where);
    return compiled::parts_of(core, where).plan(core, &optimizer.core(where), options, where);
}

/// Returns a table of a model's parameters: see plan/model_summary.hpp.
template <class Engine>
std::string model_summary(const Groups<Engine>& model, SourceLocation where = SourceLocation::current()) {
    const compiled::Groups& core = model.core(where);
    return compiled::parts_of(core, where).model_summary(core, nullptr, where);
}
template <class Engine>
std::string model_summary(const Groups<Engine>& model, Optimizer<Engine>& optimizer,
                          SourceLocation where = SourceLocation::current()) {
    const compiled::Groups& core = model.core(where);
    return compiled::parts_of(core, where).model_summary(core, &optimizer.core(where), where);
}

}  // namespace SHARDKIT_BUILD
