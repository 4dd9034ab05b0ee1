// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include <shardkit/backend/threads/group.hpp>
#include <shardkit/backend/threads/world.hpp>

namespace shardkit::threads {

/// One rank's end of a group, under one of its names.
struct GroupEnd {
    World& world;
    Group& group;
    std::size_t rank;
    const std::string& axes;

    std::size_t world_rank(std::size_t member) const noexcept { return group.world_ranks()[member]; }
};

}  // namespace shardkit::threads
