// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

namespace shardkit::detail {

/// Returns the number of slots in a pool that `members` groups share.
constexpr std::size_t pool_slots(std::size_t members, std::size_t in_flight) noexcept {
    return std::min(members, in_flight);
}

}  // namespace shardkit::detail
