// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

namespace shardkit::detail {

/// Returns `given`, but at most a hundred years: then no sum with a clock's time and no number of nanoseconds
/// overflows, as those of milliseconds::max() do.
constexpr std::chrono::milliseconds bounded_wait(std::chrono::milliseconds given) noexcept {
    return std::min(given, std::chrono::milliseconds(std::chrono::hours(24 * 365 * 100)));
}

}  // namespace shardkit::detail
