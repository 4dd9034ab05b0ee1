// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <string_view>

#include <shardkit/comm/traffic_log.hpp>

namespace shardkit::self {

/// What the communicators of a single rank share; it outlives them.
class World {
  public:
    World() = default;
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    /// Stays empty: one rank communicates nothing.
    TrafficLog& traffic() noexcept { return traffic_; }

    /// The kept copy of a communicator's name.
    const std::string& label(std::string_view axes) {
        const auto known = std::find(labels_.begin(), labels_.end(), axes);
        return known != labels_.end() ? *known : labels_.emplace_back(axes);
    }

  private:
    TrafficLog traffic_;
    std::deque<std::string> labels_;  // a deque, because communicators point at its strings
};

}  // namespace shardkit::self
