// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/call.hpp>
#include <shardkit/backend/nccl/config.hpp>
#include <shardkit/backend/nccl/group.hpp>
#include <shardkit/backend/nccl/world.hpp>

namespace shardkit::nccl::detail {

/// Collective over `call.group`: ranks with the same color form a group, ordered by key, then by rank. Ends when all
/// have joined; NCCL may still connect and take memory at a verb, the first of its kind.
/// A group of one rank gets no communicator of NCCL's.
/// Cost:    an all-gather of 16 bytes per rank, for which the host waits, and ncclCommSplit.
inline Group& split_group(const Call& call, std::size_t color, std::size_t key, std::string_view axes,
                          const gpu::TimelineRef& stream) {
    struct Place {
        std::uint64_t key;
        std::size_t rank;
        auto operator<=>(const Place&) const = default;
    };
    constexpr std::size_t wish_words = 2;  // color and key
    constexpr std::size_t wish_bytes = wish_words * sizeof(std::uint64_t);
    World& world = call.world;
    const Group& parent = call.group;
    if (parent.size == 1) { return world.add_group(axes); }
    const auto wishes = world.wishes();
    const auto on_device = world.staging().first(parent.size * wish_bytes);
    const std::size_t own = parent.rank * wish_words;
    wishes[own] = color;
    wishes[own + 1] = key;
    gpu::detail::check(cudaMemcpyAsync(on_device.data() + parent.rank * wish_bytes, wishes.data() + own, wish_bytes,
                                       cudaMemcpyHostToDevice, stream.native()),
                       "cudaMemcpyAsync", call.where);
    world.complete(call, "ncclAllGather",
                   ncclAllGather(on_device.data() + parent.rank * wish_bytes, on_device.data(), wish_words,
                                 ncclUint64, parent.comm, stream.native()));
    gpu::detail::check(
        cudaMemcpyAsync(wishes.data(), on_device.data(), on_device.size(), cudaMemcpyDeviceToHost, stream.native()),
        "cudaMemcpyAsync", call.where);
    // ncclCommSplit wants no work of the parent under way.
    stream.synchronize(call.where);

    std::vector<std::uint64_t> colors;
    std::vector<Place> members;
    for (std::size_t q = 0; q < parent.size; ++q) {
        colors.push_back(wishes[q * wish_words]);
        if (colors.back() == color) { members.push_back({wishes[q * wish_words + 1], q}); }
    }
    std::sort(members.begin(), members.end());
    std::sort(colors.begin(), colors.end());
    colors.erase(std::unique(colors.begin(), colors.end()), colors.end());

    // NCCL's colors and keys are ints, so the order of the colors and of the members stands for them.
    const auto color_index = std::lower_bound(colors.begin(), colors.end(), color) - colors.begin();
    const auto place = std::find(members.begin(), members.end(), Place{key, parent.rank}) - members.begin();
    // A group of one rank has nobody to talk to. If all are, nobody calls; otherwise all ranks do, also those that
    // get nothing.
    const bool alone = members.size() == 1;
    if (colors.size() < parent.size) {
        ncclConfig_t config = config_of(world.options());
        Group& made = world.add_group(axes);
        world.complete_made(world, parent, made, "ncclCommSplit",
                            ncclCommSplit(parent.comm, alone ? NCCL_SPLIT_NOCOLOR : static_cast<int>(color_index),
                                          static_cast<int>(place), &made.comm, &config),
                            alone ? Made::none : Made::communicator, call.doing(), call.where);
        if (!alone) { world.welcome(made, call.where); }
        return made;
    }
    return world.add_group(axes);
}

}  // namespace shardkit::nccl::detail
