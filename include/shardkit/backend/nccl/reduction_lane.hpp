// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/config.hpp>
#include <shardkit/backend/nccl/connect_again.hpp>
#include <shardkit/backend/nccl/group.hpp>
#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::nccl::detail {

/// Gives `group` a second communicator for verbs that are given to the stream of reductions, if those have a stream
/// of their own and the group has none yet. NCCL runs the work of one communicator in one order, whatever its
/// streams. Collective over the group; the host waits, for the streams too: NCCL wants no work of a communicator that
/// is split under way.
/// @throws CommError
inline void separate_reductions(World& world, Group& group, SourceLocation where) {
    const auto streams = world.streams();
    if (!world.runs_beside(streams.reduction) || group.size == 1 || group.reductions != nullptr) { return; }
    constexpr std::string_view doing = "the communicator for reductions";
    world.require_usable(doing, where);
    const gpu::detail::DeviceGuard guard(world.device(), where);
    streams.synchronize(where);
    group.reductions = &connect_again(world, group, shardkit::detail::concat("reductions over ", group.made_as),
                                      config_of(world.options()), doing, where);
    world.register_memory(where);
}

/// Returns the group that a verb over `group` that is given to `stream` goes over.
inline Group& lane(const World& world, Group& group, const gpu::TimelineRef& stream) noexcept {
    return group.reductions != nullptr && world.runs_beside(stream) ? *group.reductions : group;
}

}  // namespace shardkit::nccl::detail
