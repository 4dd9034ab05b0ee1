// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <limits>

#include <shardkit/comm/verb.hpp>

namespace shardkit {

/// A link between neighbours of a ring: what a message costs before its first byte, and bytes per second after it.
struct LinkModel {
    double latency = 0;                                          ///< seconds a message
    double bandwidth = std::numeric_limits<double>::infinity();  ///< bytes a second, of each rank

    /// Seconds for `bytes` in `messages` that follow each other.
    constexpr double seconds(double messages, double bytes) const noexcept {
        return messages * latency + bytes / bandwidth;
    }
    /// The worse of both in either respect: what a ring over both kinds of links waits for.
    friend constexpr LinkModel slower(const LinkModel& a, const LinkModel& b) noexcept {
        return {a.latency > b.latency ? a.latency : b.latency, a.bandwidth < b.bandwidth ? a.bandwidth : b.bandwidth};
    }
    friend constexpr bool operator==(const LinkModel&, const LinkModel&) noexcept = default;
};

/// What a prediction of time knows of the machines: the links within a node and across nodes, for each verb (engines
/// reach other bandwidths with other verbs), and how ranks lie on nodes.
struct TimeModel {
    using Links = std::array<LinkModel, verb_count>;  ///< indexed by verb

    Links within{};
    Links across{};
    std::size_t ranks_per_node = 0;  ///< ranks 0 .. k - 1 on the first node, and so on; 0: all on one node

    /// One link for all verbs.
    static constexpr Links links(const LinkModel& link) noexcept {
        Links all{};
        for (LinkModel& each : all) { each = link; }
        return all;
    }
    /// The links of a ring whose ranks lie on one node, or on several: then it waits for the slower ones.
    constexpr LinkModel link(Verb verb, bool spans_nodes) const noexcept {
        const auto i = static_cast<std::size_t>(verb);
        return spans_nodes ? slower(within[i], across[i]) : within[i];
    }
};

}  // namespace shardkit
