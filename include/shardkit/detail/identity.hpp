// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace shardkit::detail {

/// A number that no other call in this process returns, and never 0: tells objects apart whose addresses may be used
/// again.
inline std::uint64_t new_identity() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace shardkit::detail
