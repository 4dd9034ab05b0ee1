// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/policy/offload.hpp>

namespace shardkit {

/// The options of a rank.
struct RankOptions {
    /// The number of buffers that the windows (and likewise the gradients) of groups with the same shapes share:
    /// prefetch depth + 1.
    std::size_t in_flight = 2;
    /// The bytes of each of the two slots through which the states of offloaded groups pass: see Offload.
    std::size_t offload_slot_bytes = default_offload_slot_bytes;
};

}  // namespace shardkit
