// SPDX-License-Identifier: Apache-2.0
#include "plan_model.hpp"

#include <span>
#include <vector>

#include <shardkit/mesh/device_mesh.hpp>

#include "elements.hpp"
#include "with_element.hpp"
#include "with_policy.hpp"

namespace benchmarks::policies {

namespace {

shardkit::AxisGrid grid_of(const MeshExtents& mesh) { return shardkit::DeviceMesh(mesh.dp, mesh.tp, mesh.cp).grid(); }

}  // namespace

shardkit::PolicyTraits traits_of(const Options& options, const MeshExtents& mesh, PolicyKind policy) {
    return with_policy(policy, options, mesh,
                       [&](const auto& chosen) { return shardkit::policy_traits(chosen, mesh.dp, mesh.cp); });
}

shardkit::Plan plan_model(const Options& options, const MeshExtents& mesh, PolicyKind policy) {
    const shardkit::AxisGrid grid = grid_of(mesh);
    const auto described = with_element(options.element, [&]<class T>(std::type_identity<T>) {
        return with_policy(policy, options, mesh, [&]<class Policy>(const Policy& chosen) {
            std::vector<shardkit::GroupDescription> groups;
            for (const GroupSize& group : options.groups) {
                const shardkit::Shapes<Elements<T>> shapes{shardkit::shape<Elements<T>>(group.numel)};
                groups.push_back(shardkit::describe_group<Elements<T>, Policy>(group.path, shapes, grid, chosen));
            }
            return groups;
        });
    });
    return shardkit::plan(std::span<const shardkit::GroupDescription>(described), grid,
                          {.microbatches = options.microbatches,
                           .in_flight = options.in_flight(),
                           .optimizer_states = options.optimizer_states()});
}

}  // namespace benchmarks::policies
