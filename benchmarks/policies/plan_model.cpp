// SPDX-License-Identifier: Apache-2.0
#include "plan_model.hpp"

#include <span>
#include <vector>

#include <shardkit/mesh/device_mesh.hpp>

#include "elements.hpp"
#include "with_element.hpp"

namespace benchmarks::policies {

namespace {

shardkit::AxisGrid grid_of(const program::MeshExtents& mesh) {
    return shardkit::DeviceMesh(mesh.dp, mesh.tp, mesh.cp).grid();
}

}  // namespace

shardkit::PolicyValues traits_of(const Options& options, const program::MeshExtents& mesh,
                                 program::PolicyKind policy) {
    return shardkit::policy_values(options.policy_on(mesh, policy), mesh.dp);
}

shardkit::Plan plan_model(const Options& options, const program::MeshExtents& mesh, program::PolicyKind policy) {
    const shardkit::AxisGrid grid = grid_of(mesh);
    const shardkit::DynamicPolicy chosen = options.policy_on(mesh, policy);
    const auto described = with_element(options.element, [&]<class T>(std::type_identity<T>) {
        std::vector<shardkit::GroupDescription> groups;
        for (const GroupSize& group : options.groups) {
            const shardkit::Shapes<Elements<T>> shapes{shardkit::shape<Elements<T>>(group.numel)};
            groups.push_back(shardkit::describe_group<Elements<T>>(group.path, shapes, grid, chosen));
        }
        return groups;
    });
    return shardkit::plan(std::span<const shardkit::GroupDescription>(described), grid,
                          {.microbatches = options.microbatches,
                           .in_flight = options.in_flight(),
                           .optimizer_states = options.optimizer_states()});
}

}  // namespace benchmarks::policies
