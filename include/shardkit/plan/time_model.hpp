// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include <shardkit/comm/verb.hpp>
#include <shardkit/plan/link_model.hpp>

namespace shardkit {

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
