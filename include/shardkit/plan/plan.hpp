// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <shardkit/comm/moved.hpp>
#include <shardkit/plan/memory_plan.hpp>
#include <shardkit/plan/traffic_plan.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit {

/// Memory and traffic of one rank and one training step: sums over the rows of each group's placement table, which
/// its stores execute, with the sizes of the layout that they use.
struct Plan {
    std::size_t numel = 0;  ///< distinct parameter elements of the model
    MemoryPlan memory;
    TrafficPlan traffic;
};

/// The plan for described groups; constant expression or run time, no rank needed.
///     static_assert(plan(groups, DeviceMesh<64>{}.grid()).memory.total() <= ByteCount(80'000'000'000));
constexpr Plan plan(std::span<const GroupDescription> groups, const AxisGrid& mesh, const PlanOptions& options = {}) {
    Plan made{0, plan_memory(groups, options), plan_traffic(groups, mesh, options)};
    for (const GroupDescription& g : groups) { made.numel += g.numel; }
    return made;
}

/// The descriptions of a model's groups, in its order; they refer to the groups' paths.
template <class Engine>
std::vector<GroupDescription> describe_groups(const Groups<Engine>& model,
                                              SourceLocation where = SourceLocation::current()) {
    std::vector<GroupDescription> groups;
    detail::Access::walk(
        model, [&](detail::Group<Engine>& group) { groups.push_back(detail::describe_group(group.geometry())); },
        where);
    return groups;
}

/// The plan of a model that exists. Where `ranks_per_host` is not said and the engine KnowsHosts, ranks lie on its
/// hosts, if they do so in their order.
template <class Engine>
Plan plan(const Groups<Engine>& model, PlanOptions options = {}, SourceLocation where = SourceLocation::current()) {
    const std::vector<GroupDescription> groups = describe_groups(model, where);
    if (groups.empty()) { return {}; }
    const Context<Engine>& context = model.context(where);
    options.engine = detail::engine_traits<Engine>();
    if (options.ranks_per_host == 0) { options.ranks_per_host = shardkit::ranks_per_host(context.world()); }
    return plan(std::span<const GroupDescription>(groups.data(), groups.size()), context.grid(), options);
}

}  // namespace shardkit
