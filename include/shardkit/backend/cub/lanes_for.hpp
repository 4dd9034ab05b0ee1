// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

namespace shardkit::gpu {

/// Bytes that a thread reads or writes by one instruction at most.
inline constexpr std::size_t widest_access = 16;

/// Elements that one thread takes at a time, in a pass over spans of these types: as many as fill the widest access
/// in the narrowest type, unless the widest type then needs more than two accesses.
template <class... T>
inline constexpr std::size_t lanes_for = std::min(widest_access / std::min({sizeof(T)...}),
                                                  2 * widest_access / std::max({sizeof(T)...}));

}  // namespace shardkit::gpu
