// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/core/counts.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/optim/offload_plan.hpp>
#include <shardkit/plan/memory_plan.hpp>
#include <shardkit/plan/traffic_plan.hpp>
#include <shardkit/spi/placement.hpp>

namespace shardkit::detail {

/// Counts communicators of several ranks, each set of ranks once, and those whose reductions have a second one.
class CommunicatorCount {
  public:
    constexpr void add(const RankGroup& ranks, bool separate) {
        if (ranks.size() == 1) { return; }
        std::size_t at = 0;
        while (at < sets_ && !(known_[at] == ranks)) { ++at; }
        if (at == most) { return; }  // no model has as many
        if (at == sets_) { known_[sets_++] = ranks; }
        separate_[at] = separate_[at] || separate;
    }
    /// @param for_sums  whether each set of ranks has one more, for sums of 16-bit elements
    constexpr std::size_t count(bool for_sums) const noexcept {
        std::size_t all = for_sums ? 2 * sets_ : sets_;
        for (std::size_t i = 0; i < sets_; ++i) { all += separate_[i] ? 1U : 0U; }
        return all;
    }

  private:
    static constexpr std::size_t most = 32;
    std::array<RankGroup, most> known_{};
    std::array<bool, most> separate_{};
    std::size_t sets_ = 0;
};

/// Returns the number of communicators of several ranks that a rank has for these groups, the world's among them.
constexpr std::size_t planned_communicators(std::span<const GroupDescription> groups, const AxisGrid& mesh,
                                            const engine::Traits& engine) {
    CommunicatorCount count;
    AxisNames all;
    for (std::size_t a = 0; a < mesh.axis_count(); ++a) { all.add(mesh.axis(a).name); }
    count.add(mesh.group(all.span(), 0), false);
    for (std::size_t g = 0; g < groups.size(); ++g) {
        const GroupDescription& group = groups[g];
        if (g > 0 && group.policy == groups[g - 1].policy && group.experts == groups[g - 1].experts &&
            group.trainable == groups[g - 1].trainable && group.tp_sum.empty() == groups[g - 1].tp_sum.empty()) {
            continue;
        }
        const GroupAxes axes = GroupAxes::of(group, mesh);
        const GroupRows rows(group);
        for (const Over over : all_over) {
            // Reductions beside gathers or layers over the same ranks: see prepare_reductions.
            const auto size_of = [&](Over of) { return axes.ranks[static_cast<std::size_t>(of)]; };
            const bool beside = over == Over::tp || gathers_over(over, rows, size_of);
            const bool reduces =
                std::any_of(rows.collectives().begin(), rows.collectives().end(), [&](const CollectiveRow& row) {
                    const bool sums = row.extent != Extent::tp_sum || !group.tp_sum.empty();
                    return row.over == over && row.verb != Verb::all_gather && sums;
                });
            count.add(axes.axes[static_cast<std::size_t>(over)].group(mesh, 0),
                      engine.separates_reductions && beside && reduces);
        }
    }
    return count.count(engine.adds_16_bits);
}

/// Returns an estimate of the device's memory that the engine's library takes for these communicators.
constexpr ByteCount communicator_memory(std::span<const GroupDescription> groups, const AxisGrid& mesh,
                                        const engine::Traits& engine) {
    if (engine.communicator_bytes == 0 || mesh.size() == 1) { return {}; }
    const std::size_t count = engine.shares_communicators ? 1 : planned_communicators(groups, mesh, engine);
    return ByteCount(count * engine.communicator_bytes);
}

}  // namespace shardkit::detail

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

namespace detail {
/// Returns the plan of a step with that memory, which makes counts(group's rows, group's number) with each group.
template <class Counts>
constexpr Plan plan_of(std::span<const GroupDescription> groups, const AxisGrid& mesh,
                       const planner::PlanOptions& options, const planner::MemoryPlan& memory, const Counts& counts) {
    Plan made{0, memory, traffic_of(groups, mesh, options, counts), planner::plan_host_link(groups, options)};
    made.memory.communicators = communicator_memory(groups, mesh, options.engine);
    for (std::size_t g = 0; g < groups.size(); ++g) {
        made.numel += groups[g].numel;
        made.zeroed += counts(GroupRows(groups[g]), g).sums_begun * zeroed_bytes(groups[g]);
    }
    return made;
}
}  // namespace detail

/// Returns the plan for described groups, in a constant expression or at run time. No rank is needed.
///     static_assert(plan(groups, DeviceMesh<64>{}.grid()).memory.total() <= ByteCount(80'000'000'000));
constexpr Plan plan(std::span<const planner::GroupDescription> groups, const AxisGrid& mesh,
                    const planner::PlanOptions& options = {}) {
    return detail::plan_of(groups, mesh, options, planner::plan_memory(groups, options),
                           detail::PlainCounts{groups, options});
}

}  // namespace shardkit
