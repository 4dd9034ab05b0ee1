// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/comm/journal.hpp>

namespace shardkit::self {

/// What the communicators of a single rank share; it must outlive them.
class World {
  public:
    World() = default;
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    engine::Journal& journal() noexcept { return journal_; }

  private:
    engine::Journal journal_;
};

}  // namespace shardkit::self
