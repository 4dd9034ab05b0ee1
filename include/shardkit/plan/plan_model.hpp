// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include <shardkit/comm/ranks_per_host.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/plan/plan.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit {

/// Returns the description of a group that exists. It refers to the group's path.
template <class Layer>
planner::GroupDescription describe_group(const Layer& layer) {
    return spi::group(layer).geometry().description();
}

/// Returns the descriptions of a model's groups, in order. They refer to the groups' paths.
inline std::vector<planner::GroupDescription> describe_groups(const Model& model,
                                                              SourceLocation where = SourceLocation::current()) {
    std::vector<planner::GroupDescription> groups;
    for (detail::Group& group : detail::Access::each(model, where)) {
        groups.push_back(group.geometry().description());
    }
    return groups;
}

namespace detail {

/// The plan of described groups that exist on this engine.
inline Plan plan_groups(const std::vector<planner::GroupDescription>& groups, const Model& model,
                        planner::PlanOptions options, SourceLocation where) {
    if (groups.empty()) { return {}; }
    const Rank& rank = detail::rank_of(model, where);
    options.engine = rank.world().traits();
    if (options.ranks_per_host == 0) { options.ranks_per_host = shardkit::ranks_per_host(rank.world()); }
    return plan(std::span<const planner::GroupDescription>(groups.data(), groups.size()), rank.grid(), options);
}

}  // namespace detail

/// Returns the plan of a model that exists, with the states of an AdamW unless the options say others; where there is
/// an optimizer, give it too. If `ranks_per_host` is 0, the plan takes the ranks per host from the engine,
/// provided that ranks lie on the hosts in order.
inline Plan plan(const Model& model, planner::PlanOptions options = {},
                 SourceLocation where = SourceLocation::current()) {
    return detail::plan_groups(describe_groups(model, where), model, options, where);
}

}  // namespace shardkit
