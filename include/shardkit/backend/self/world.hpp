// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <shardkit/comm/kept_labels.hpp>
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
    const std::string& label(std::string_view axes) { return labels_.keep(axes); }

  private:
    TrafficLog traffic_;
    KeptLabels labels_;
};

}  // namespace shardkit::self
