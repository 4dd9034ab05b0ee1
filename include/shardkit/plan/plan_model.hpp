// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/plan/plan.hpp>
#include <shardkit/sharded/group_ref.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::detail SHARDKIT_FACE {
planner::GroupDescription description_of(const Group& group);
}

namespace shardkit SHARDKIT_FACE {

/// Returns the description of a group that exists. It refers to the group's path.
template <class Layer>
planner::GroupDescription describe_group(const Layer& layer) {
    return detail::description_of(spi::group(layer));
}

/// Returns the descriptions of a model's groups, in order. They refer to the groups' paths.
std::vector<planner::GroupDescription> describe_groups(const Model& model,
                                                       SourceLocation where = SourceLocation::current());
/// Returns the descriptions of a model's groups with the states that an optimizer, or the parts of one, keep of each:
/// none of a group that it does not update. They refer to the groups' paths.
std::vector<planner::GroupDescription> describe_groups(const Model& model, Optimizer& optimizer,
                                                       SourceLocation where = SourceLocation::current());

/// Returns the plan of a model that exists, with the states of an AdamW unless the options say others; where there is
/// an optimizer, give it too. If `ranks_per_host` is 0, the plan takes the ranks per host from the engine,
/// provided that ranks lie on the hosts in order.
Plan plan(const Model& model, const planner::PlanOptions& options = {},
          SourceLocation where = SourceLocation::current());
/// Returns the plan of a model and its optimizer, whose states it counts; PlanOptions::optimizer_states says nothing
/// then. What an optimizer of whole matrices holds beside its states is MatrixOptimizer::bytes_of_exchange.
Plan plan(const Model& model, Optimizer& optimizer, const planner::PlanOptions& options = {},
          SourceLocation where = SourceLocation::current());

/// Returns a table of a model's parameters: name, shape, elements of the whole tensor, and the bytes that this rank
/// holds of it between steps, master weights included. A line for each parameter, and one for the sum.
/// Order:   local work
/// @throws  UsageError when a group has ended since the model was made
std::string model_summary(const Model& model, SourceLocation where = SourceLocation::current());
/// The same with the states of the model's optimizer among the bytes.
std::string model_summary(const Model& model, Optimizer& optimizer, SourceLocation where = SourceLocation::current());

}  // namespace shardkit SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/plan/describe_model.hpp>
#endif
