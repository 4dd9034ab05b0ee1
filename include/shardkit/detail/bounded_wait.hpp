// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

namespace shardkit::detail {

/// `given`, at most a hundred years: any clock's time plus this is a time of that clock, and so is its number of
/// nanoseconds, where those of milliseconds::max() overflow.
constexpr std::chrono::milliseconds bounded_wait(std::chrono::milliseconds given) noexcept {
    return std::min(given, std::chrono::milliseconds(std::chrono::hours(24 * 365 * 100)));
}

}  // namespace shardkit::detail
