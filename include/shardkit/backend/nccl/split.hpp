// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/call.hpp>
#include <shardkit/backend/nccl/connect_again.hpp>
#include <shardkit/backend/nccl/connections.hpp>
#include <shardkit/backend/nccl/group.hpp>
#include <shardkit/backend/nccl/options.hpp>
#include <shardkit/backend/nccl/world_state.hpp>
#include <shardkit/backend/shared/split_groups.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::nccl::detail {

/// Gathers every rank's record, in the order of the group's ranks. Collective over the group; the host waits.
template <class Record>
std::vector<Record> tell(const Call& call, const Record& own) {
    static_assert(sizeof(Record) <= Resources::record_bytes);
    WorldState& world = call.world;
    return gather_records(world, call.group, own, world.host_records().data(), world.staging(call.stream).data(),
                          call.stream, call.doing(), call.where);
}

/// Splits a group, collectively over `call.group`: ranks with the same color form a group, ordered by key, then by
/// rank. Returns when all have joined; NCCL may still connect and allocate memory at the first verb of a kind. A
/// group of one rank gets no NCCL communicator. A group that no member uses any more is reused: a communicator takes
/// GPU memory, and its destruction needs all of its ranks at the same time.
/// Cost:    an all-gather of 32 bytes per rank, for which the host waits; one of 64 bytes if all members of a group
///          have idle ones; ncclCommSplit if a group is new.
inline Group& split_group(const Call& call, std::size_t color, std::size_t key, std::string_view axes) {
    WorldState& world = call.world;
    const Group& parent = call.group;
    std::deque<Group>& groups = world.groups();
    if (parent.size == 1) { return world.group_alone(); }
    const std::uint64_t next = (world.world_group().rank + std::uint64_t{1}) << 32U | groups.size();
    // Whether no communicator of this rank uses it any more.
    const auto is_idle = [&](const Group& group) { return group.parent == &parent && group.handles.none(); };
    // NCCL's colors and keys are ints: the indices of the colors and of the members are used instead.
    shared::detail::ReusingSplit split(
        {color, key, next, std::ranges::any_of(groups, is_idle) ? 1U : 0U}, parent.rank, 2,
        [&](const auto& record) { return tell(call, record); },
        [&](const std::vector<std::size_t>& members) {
            return shared::detail::latest_idle(
                groups, [&](const Group& group) { return is_idle(group) && group.members == members; });
        });
    const bool alone = split.members.size() == 1;  // and communicates with nobody
    if (split.makes) {
        // All ranks of the parent make the call, also those that get nothing.
        ncclConfig_t config = config_of(world.options());
        const bool is_new = !alone && split.again == 0;
        Group& made = is_new ? world.add_group(axes) : world.group_alone();
        world.make(
            world, parent, made, "ncclCommSplit",
            [&](ncclComm_t comm, ncclComm_t* out) {
                return ncclCommSplit(comm, is_new ? static_cast<int>(split.own()) : NCCL_SPLIT_NOCOLOR,
                                     static_cast<int>(split.place), out, &config);
            },
            is_new ? Made::communicator : Made::none, call.doing(), call.where);
        if (is_new) {
            world.welcome(made, call.where);
            made.parent = &parent;
            made.number = split.number;
            made.members = std::move(split.members);
            return made;
        }
    }
    if (alone) { return world.group_alone(); }
    Group& group = *std::ranges::find(groups, split.again, &Group::number);
    group.made_as = axes;
    return group;
}

/// Gives `group` a second communicator for verbs on the stream of reductions, if reductions have a stream of their
/// own and the group has none yet. NCCL runs the work of one communicator in one order, whatever its streams.
/// Collective over the group. The host waits, also for the streams: NCCL cannot split a communicator with work in
/// progress.
/// @throws CommError
inline void separate_reductions(WorldState& world, Group& group, SourceLocation where) {
    const auto streams = world.streams();
    if (!world.runs_beside(gpu::TimelineRef(streams.reduction, where)) || group.size == 1 ||
        group.reductions != nullptr) {
        return;
    }
    constexpr std::string_view doing = "the communicator for reductions";
    world.require_usable(doing, where);
    const gpu::detail::DeviceGuard guard(world.device(), where);
    streams.synchronize(where);
    group.reductions = &connect_again(world, group, shardkit::detail::concat("reductions over ", group.made_as),
                                      config_of(world.options()), doing, where);
    group.reductions->sums = group.sums;
    world.register_memory(where);
}

/// Returns the group whose communicator a verb over `group` on `stream` uses.
inline Group& lane(const WorldState& world, Group& group, const gpu::TimelineRef& stream) noexcept {
    return group.reductions != nullptr && world.runs_beside(stream) ? *group.reductions : group;
}

}  // namespace shardkit::nccl::detail
