// SPDX-License-Identifier: Apache-2.0
#include "prediction.hpp"

#include <span>
#include <vector>

#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/plan/time_model.hpp>

#include "elements.hpp"

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

Links Links::given(const shardkit::LinkModel& within, const shardkit::LinkModel& across) {
    return {shardkit::TimeModel::links(within), shardkit::TimeModel::links(across), std::nullopt, "given by flags"};
}

Links Links::of(const FittedLinks& fitted) { return {fitted.links(), fitted.links(), fitted, fitted.source}; }

std::vector<PredictedRow> predict(const Options& o, const Links& links) {
    const shardkit::TimeModel model{links.within, links.across, o.links.ranks_per_node};
    std::vector<PredictedRow> rows;
    for (const program::MeshExtents& mesh : o.predict) {
        const shardkit::AxisGrid grid = shardkit::DeviceMesh(mesh.dp, mesh.tp, mesh.cp).grid();
        for (const program::PolicyKind policy : o.policies) {
            const shardkit::Plan plan = plan_model(o, mesh, policy);
            const shardkit::PolicyValues traits = traits_of(o, mesh, policy);
            PredictedRow row;
            row.mesh = mesh;
            row.nodes = (mesh.world() + o.links.ranks_per_node - 1) / o.links.ranks_per_node;
            row.policy = policy;
            row.shard_group = policy == program::PolicyKind::no_shard ? 1 : traits.shard_group;
            row.memory = plan.memory.total().value;
            for (const shardkit::Verb verb : step_verbs) {
                row.calls += static_cast<double>(plan.traffic.total(verb).calls);
                row.bytes += static_cast<double>(plan.traffic.total(verb).moved.value);
            }
            row.compute = o.busy_seconds();
            row.communication = shardkit::communication_seconds(plan.traffic, grid, model);
            rows.push_back(row);
        }
    }
    return rows;
}

}  // namespace benchmarks::policies
