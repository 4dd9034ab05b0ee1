// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace shardkit::detail {

/// Returns a number that no other call in this process returns, and never 0. It identifies objects whose addresses
/// may be reused.
inline std::uint64_t new_identity() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace shardkit::detail
