// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>

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

}  // namespace shardkit
