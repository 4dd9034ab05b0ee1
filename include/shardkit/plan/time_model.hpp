// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/core/validate_number.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/optim/offload_plan.hpp>
#include <shardkit/plan/traffic_plan.hpp>

namespace shardkit::planner {

/// A link between neighbours of a ring: the latency of a message, and the bandwidth after it.
struct LinkModel {
    double latency = 0;                                          ///< seconds per message
    double bandwidth = std::numeric_limits<double>::infinity();  ///< bytes per second, of each rank

    /// Returns the seconds for `bytes` in `messages` that follow each other.
    constexpr double seconds(double messages, double bytes) const noexcept {
        return messages * latency + bytes / bandwidth;
    }
    /// Returns the higher latency and the lower bandwidth of both: what limits a ring over both kinds of links.
    friend constexpr LinkModel slower(const LinkModel& a, const LinkModel& b) noexcept {
        return {a.latency > b.latency ? a.latency : b.latency, a.bandwidth < b.bandwidth ? a.bandwidth : b.bandwidth};
    }
    friend constexpr bool operator==(const LinkModel&, const LinkModel&) noexcept = default;
};

/// The machines as a prediction of time sees them: the links within a node and across nodes for each verb, as engines
/// reach different bandwidths with different verbs, and the number of ranks per node.
struct TimeModel {
    using Links = std::array<LinkModel, detail::verb_count>;  ///< indexed by verb

    Links within{};
    Links across{};
    std::size_t ranks_per_node = 0;  ///< k places ranks 0 .. k - 1 on the first node, and so on; 0: all on one node
    LinkModel host{};                ///< a device's with the host's memory, each way: see Offload

    /// Returns the same link for all verbs.
    static constexpr Links links(const LinkModel& link) noexcept {
        Links all{};
        for (LinkModel& each : all) { each = link; }
        return all;
    }
    /// Returns the link that limits a ring on one node or, if `spans_nodes`, over several.
    constexpr LinkModel link(Verb verb, bool spans_nodes) const noexcept {
        const auto i = static_cast<std::size_t>(verb);
        return spans_nodes ? slower(within[i], across[i]) : within[i];
    }
};

}  // namespace shardkit::planner

namespace shardkit::detail {

[[noreturn]] inline void throw_impossible(std::string_view which, std::string_view what,
                                          const planner::LinkModel& link, SourceLocation where) {
    throw_invalid_argument(where, "TimeModel: the link ", which, " has latency ", number_text(link.latency),
                           " s and bandwidth ", number_text(link.bandwidth), " B/s for ", what,
                           ", expected a finite latency >= 0 and a bandwidth > 0");
}
/// Returns whether a link's latency and bandwidth are possible. A bandwidth may be infinite.
constexpr bool is_possible(const planner::LinkModel& link) noexcept {
    constexpr auto infinite = std::bit_cast<std::uint64_t>(std::numeric_limits<double>::infinity());
    const bool carries =
        is_finite(link.bandwidth) ? link.bandwidth > 0 : std::bit_cast<std::uint64_t>(link.bandwidth) == infinite;
    return carries && rules::not_negative.has(link.latency);
}
/// Checks that latencies and bandwidths are possible. A bandwidth may be infinite.
/// @throws std::invalid_argument
constexpr void require_possible(const planner::TimeModel& model, SourceLocation where) {
    const auto require = [&](const planner::LinkModel& link, std::string_view which, std::string_view what) {
        if (!is_possible(link)) { throw_impossible(which, what, link, where); }
    };
    for (std::size_t verb = 0; verb < verb_count; ++verb) {
        require(model.within[verb], "within nodes", name(static_cast<Verb>(verb)));
        require(model.across[verb], "across nodes", name(static_cast<Verb>(verb)));
    }
    require(model.host, "to the host's memory", "copies");
}

/// Returns whether any group over these axes has ranks on more than one node.
constexpr bool spans_nodes(const planner::PlannedAxes& axes, const AxisGrid& mesh, std::size_t ranks_per_node) {
    if (ranks_per_node == 0) { return false; }
    if (axes.is_world()) { return mesh.size() > ranks_per_node; }
    for (std::size_t rank = 0; rank < mesh.size(); ++rank) {
        if (axes.group(mesh, rank).color() / ranks_per_node != rank / ranks_per_node) { return true; }
    }
    return false;
}

}  // namespace shardkit::detail

namespace shardkit::planner {

/// Returns the seconds of an update that takes `update` seconds by itself, while pieces of what is offloaded pass two
/// slots as the plan says: pieces come, are updated and go at the same time, and one comes to a slot once the one
/// before it there is gone.
/// Cost:    arithmetic for each piece
constexpr double offloaded_update_seconds(double update, const HostLinkPlan& plan, const LinkModel& host) noexcept {
    if (plan.pieces == 0) { return update; }
    const auto pieces = static_cast<double>(plan.pieces);
    const double fetch = host.seconds(1, static_cast<double>(plan.to_device.value) / pieces);
    const double store = host.seconds(1, static_cast<double>(plan.to_host.value) / pieces);
    double fetched = 0;
    double updated = 0;
    double slots[2] = {0, 0};  // when each is free
    for (std::size_t piece = 0; piece < plan.pieces; ++piece) {
        double& slot = slots[piece % 2];
        fetched = (fetched > slot ? fetched : slot) + fetch;
        updated = (updated > fetched ? updated : fetched) + update / pieces;
        const double last = slots[1 - piece % 2];  // of the stores
        slot = (updated > last ? updated : last) + store;
    }
    return slots[(plan.pieces - 1) % 2];
}

/// Returns the seconds that the collectives of a plan's step take one after the other, each as a ring:
///     (n - 1) a + (n - 1) / n S / B for an all-gather or a reduce-scatter, twice that for an all-reduce,
///     (n - 1) a + M / B for an uneven all-to-all, with the M bytes of the rank that sends or receives most,
/// with a and B of the slowest link of the ring. Overlap with computation is not considered.
/// Units:   seconds, bytes, bytes per second. The bytes are the plan's `moved`, which include padding and what
/// engines add.
/// `mesh`:  the plan's mesh.
/// Cost:    arithmetic for every rank of the mesh; no rank is needed.
/// @throws  std::invalid_argument for a link with a negative, infinite or NaN latency, or a bandwidth not above 0
/// @post    0 with one rank per group; linear in latency and in 1 / bandwidth
/// Source:  Chan et al., Collective communication, 2007; Thakur, Rabenseifner and Gropp 2005
constexpr double communication_seconds(const TrafficPlan& plan, const AxisGrid& mesh, const TimeModel& model,
                                       SourceLocation where = SourceLocation::current()) {
    detail::require_possible(model, where);
    double seconds = 0;
    for (const auto& [verb, axes, traffic] : plan.rows()) {
        if (verb == Verb::send) { continue; }  // received in the same time
        const std::size_t ranks = axes.is_world() ? mesh.size() : axes.group(mesh, 0).size();
        seconds += model.link(verb, detail::spans_nodes(axes, mesh, model.ranks_per_node))
                       .seconds(static_cast<double>(traffic.calls) * detail::ring_messages(verb, ranks),
                                static_cast<double>(std::max(traffic.moved.value, traffic.busiest.value)));
    }
    return seconds;
}

}  // namespace shardkit::planner
