// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <type_traits>
#include <vector>

#include <shardkit/comm/moved.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/plan/plan.hpp>
#include <shardkit/step/groups.hpp>

namespace shardkit {

/// The description of a group that exists; it refers to the group's path.
template <class Layer>
GroupDescription describe_group(const Layer& layer) {
    return detail::Access::state(layer).geometry().description();
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
