// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/comm/journal.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::self {

/// What the communicators of a single rank share; it must outlive them.
class World : shardkit::detail::NotCopied {
  public:
    engine::Journal& journal() noexcept { return journal_; }

  private:
    engine::Journal journal_;
};

}  // namespace shardkit::self
