// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include <shardkit/comm/moved.hpp>
#include <shardkit/plan/memory_plan.hpp>
#include <shardkit/plan/traffic_plan.hpp>
#include <shardkit/step/groups.hpp>

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
template <class... T>
std::vector<GroupDescription> describe_groups(const Groups<T...>& model) {
    std::vector<GroupDescription> groups;
    model.for_each([&](auto& layer) { groups.push_back(describe_group(layer)); });
    return groups;
}

/// The plan of a model that exists. Where `ranks_per_host` is not said and the engine KnowsHosts, ranks lie on its
/// hosts, if they do so in their order.
template <class... T>
Plan plan(const Groups<T...>& model, PlanOptions options = {}) {
    const std::vector<GroupDescription> groups = describe_groups(model);
    const AxisGrid* mesh = nullptr;
    model.for_each([&](auto& layer) {
        mesh = &layer.context().grid();
        options.engine = detail::engine_traits<typename std::remove_cvref_t<decltype(layer)>::Engine>();
        if (options.ranks_per_host == 0) {
            options.ranks_per_host = shardkit::ranks_per_host(layer.context().world());
        }
    });
    if (mesh == nullptr) { return {}; }
    return plan(std::span<const GroupDescription>(groups.data(), groups.size()), *mesh, options);
}

}  // namespace shardkit
