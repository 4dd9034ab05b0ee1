// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/optim/offload_plan.hpp>
#include <shardkit/plan/communicator_plan.hpp>
#include <shardkit/plan/memory_plan.hpp>
#include <shardkit/plan/traffic_plan.hpp>

namespace shardkit {

/// The memory and traffic of one rank in one training step. They are sums over the rows of each group's placement
/// table, which its stores execute, with the sizes of its layout.
struct Plan {
    std::size_t numel = 0;  ///< distinct parameter elements of the model
    planner::MemoryPlan memory;
    planner::TrafficPlan traffic;
    planner::HostLinkPlan host_link{};  ///< what offloaded groups move between the device and the host's memory
    ByteCount zeroed{};  ///< gradients that a rank zeroes in a step, once for each time that a sum begins
};

/// Returns the plan for described groups, in a constant expression or at run time. No rank is needed.
///     static_assert(plan(groups, DeviceMesh<64>{}.grid()).memory.total() <= ByteCount(80'000'000'000));
constexpr Plan plan(std::span<const planner::GroupDescription> groups, const AxisGrid& mesh,
                    const planner::PlanOptions& options = {}) {
    Plan made{0, planner::plan_memory(groups, options), planner::plan_traffic(groups, mesh, options),
              planner::plan_host_link(groups, options)};
    made.memory.communicators = detail::communicator_memory(groups, mesh, options.engine);
    for (const planner::GroupDescription& g : groups) {
        made.numel += g.numel;
        const detail::StepCounts counts = detail::plain_step(detail::GroupRows(g), options.microbatches, 1);
        made.zeroed += counts.sums_begun * detail::zeroed_bytes(g);
    }
    return made;
}

}  // namespace shardkit
