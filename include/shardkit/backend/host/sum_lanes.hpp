// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/backend/host/lanes.hpp>
#include <shardkit/backend/host/summands.hpp>

namespace shardkit::host::detail {

/// sum_tiles() for sums that are made in another type than they are read or written in. Returns the end of what is
/// done, less than summed_elements before `count`.
/// @pre results that are streamed begin a cache line at `begin`
template <std::floating_point A, FloatingElement In, FloatingElement Out>
std::size_t sum_lanes(const Summands<In, Out>& summands, std::size_t begin, std::size_t count) noexcept {
    const std::size_t end = count - (count - begin) % summed_elements;
    if (use_avx2()) {
        avx2::sum_lanes<A>(summands, begin, end);
    } else {
        compiled::sum_lanes<A>(summands, begin, end);
    }
    return end;
}

}  // namespace shardkit::host::detail
