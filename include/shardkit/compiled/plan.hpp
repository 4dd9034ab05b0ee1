// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <shardkit/compiled/parts_interface.hpp>
#include <shardkit/plan/plan.hpp>

// What plan/plan_model.hpp and plan/model_summary.hpp are in the compiled form.

namespace shardkit SHARDKIT_BUILD {

/// Returns the descriptions of a model's groups, in order. They refer to the groups' paths.
inline std::vector<planner::GroupDescription> describe_groups(const Model& model,
                                                              SourceLocation where = SourceLocation::current()) {
    std::vector<planner::GroupDescription> groups;
    compiled::describe(model, nullptr, groups, where);
    return groups;
}
/// Returns the descriptions with the states that an optimizer keeps of each group.
inline std::vector<planner::GroupDescription> describe_groups(const Model& model, Optimizer& optimizer,
                                                              SourceLocation where = SourceLocation::current()) {
    std::vector<planner::GroupDescription> groups;
    compiled::describe(model, &optimizer, groups, where);
    return groups;
}

/// Returns the plan of a model that exists: see plan/plan_model.hpp.
inline Plan plan(const Model& model, const planner::PlanOptions& options = {},
                 SourceLocation where = SourceLocation::current()) {
    return compiled::plan(model, nullptr, options, where);
}
/// Returns the plan of a model and its optimizer: see plan/model_summary.hpp.
inline Plan plan(const Model& model, Optimizer& optimizer, const planner::PlanOptions& options = {},
                 SourceLocation where = SourceLocation::current()) {
    return compiled::plan(model, &optimizer, options, where);
}

/// Returns a table of a model's parameters: see plan/model_summary.hpp.
inline std::string model_summary(const Model& model, SourceLocation where = SourceLocation::current()) {
    return compiled::model_summary(model, nullptr, where);
}
inline std::string model_summary(const Model& model, Optimizer& optimizer,
                                 SourceLocation where = SourceLocation::current()) {
    return compiled::model_summary(model, &optimizer, where);
}

}  // namespace SHARDKIT_BUILD
