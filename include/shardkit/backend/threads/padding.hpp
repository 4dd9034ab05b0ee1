// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace shardkit::threads {

/// Two cache lines: neighbouring lines are fetched in pairs, so this is what keeps ranks out of each other's way.
inline constexpr std::size_t padding = 128;

}  // namespace shardkit::threads
