// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace shardkit {

/// Where a group's optimizer states lie, and with them its master weights, or what split ones keep beside the
/// parameters. On an engine whose memory is a device's they can lie in pinned host memory. Engines on host memory
/// refuse that, as nothing is to be moved there.
enum class Offload : std::uint8_t {
    none,    ///< in the engine's memory
    states,  ///< in host memory; updates run on the device, for which pieces of them come and go, with the same bits
    update   ///< in host memory, where updates run: reduced gradients go there, and parameters come back
};

/// The usual bytes of each of the two slots through which offloaded states pass: some thousand times a link's
/// latency.
inline constexpr std::size_t default_offload_slot_bytes = std::size_t{32} << 20U;
/// The fewest: a piece of 1,024 elements with an fp64 master and three fp64 states.
inline constexpr std::size_t least_offload_slot_bytes = std::size_t{32} << 10U;

}  // namespace shardkit

namespace shardkit::engine {

/// The ways that copies go between the device's memory and the host's. A link carries both at once.
enum class LinkWay : std::uint8_t { to_device, to_host };

}  // namespace shardkit::engine
