// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string_view>

#include <shardkit/comm/cost.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/plan/time_model.hpp>
#include <shardkit/plan/traffic_plan.hpp>
#include <shardkit/policy/policy_traits.hpp>

namespace shardkit {

namespace detail {

/// The axes that a row of a plan runs over; an empty list stands for the world.
constexpr std::span<const std::string_view> axis_names(TrafficAxes axes, const PolicyTraits& policy) {
    const bool over_cp = policy.cp_shards > 1;
    switch (axes) {
        case TrafficAxes::shards:
            return over_cp ? std::span<const std::string_view>(Axes<DpShard, Cp>::names) : Axes<DpShard>::names;
        case TrafficAxes::replicas:
            return over_cp ? std::span<const std::string_view>(Axes<DpReplicate>::names)
                           : Axes<DpReplicate, Cp>::names;
        case TrafficAxes::data:
            return DataAxes::names;
        case TrafficAxes::tp:
            return Axes<Tp>::names;
        case TrafficAxes::cp:
            return Axes<Cp>::names;
        case TrafficAxes::world:
            return {};
    }
    throw std::invalid_argument("axis_names: no such TrafficAxes");
}

/// Whether any group over these axes has ranks on two nodes.
constexpr bool spans_nodes(const AxisGrid& split, std::span<const std::string_view> names, std::size_t per_node) {
    if (per_node == 0) { return false; }
    if (names.empty()) { return split.size() > per_node; }
    for (std::size_t rank = 0; rank < split.size(); ++rank) {
        const RankGroup group = split.group(names, rank);
        if (group.color() / per_node != rank / per_node) { return true; }
    }
    return false;
}

}  // namespace detail

/// Seconds that the collectives of a plan's step take one after the other, each as a ring:
///     (n - 1) a + (n - 1) / n S / B for an all-gather or a reduce-scatter, twice that for an all-reduce,
/// with a and B of the slowest link of the ring. What overlaps with computation is not for this function to say.
/// Units:   seconds, bytes, bytes a second. The bytes are the plan's `moved`, so padding and engines' habits count.
/// `policy`: whose plan it is: shard_group and cp_shards say which ranks meet.
/// Cost:    arithmetic for every rank of the mesh; no rank is needed.
/// @post    with one rank a group 0; linear in latency and in 1 / bandwidth
/// Source:  Chan et al., Collective communication, 2007; Thakur, Rabenseifner and Gropp 2005
constexpr double communication_seconds(const TrafficPlan& plan, const AxisGrid& mesh, const PolicyTraits& policy,
                                       const TimeModel& model) {
    const AxisGrid split = mesh.split_axis(Dp::name, policy.shard_group, DpReplicate::name, DpShard::name);
    double seconds = 0;
    for (const TrafficAxes axes : TrafficPlan::all_axes) {
        const auto names = detail::axis_names(axes, policy);
        const std::size_t ranks = names.empty() ? mesh.size() : split.group(names, 0).size();
        bool looked = false;
        bool spans = false;
        for (const Verb verb : TrafficPlan::verbs) {
            const PlannedTraffic& row = plan(verb, axes);
            if (row.calls == 0 || verb == Verb::send) { continue; }  // what is sent is received in the same time
            if (!looked) { spans = detail::spans_nodes(split, names, model.ranks_per_node); }
            looked = true;
            seconds += model.link(verb, spans)
                           .seconds(static_cast<double>(row.calls) * ring_messages(verb, ranks),
                                    static_cast<double>(row.moved.value));
        }
    }
    return seconds;
}

}  // namespace shardkit
