// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <shardkit/backend/shared/split_groups.hpp>
#include <shardkit/backend/threads/group.hpp>
#include <shardkit/backend/threads/rendezvous.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/detail/list.hpp>

namespace shardkit::threads::detail {

/// A rank's group and place after a split.
struct SplitResult {
    std::shared_ptr<Group> group;
    std::size_t rank = 0;
};

/// Splits a group, collectively over `handle.group`: ranks with the same color form a group, ordered by key, then by
/// rank. The first member makes the group, and the others take its address. A template, so that a file that splits
/// nothing compiles none of it.
template <class Handle>
SplitResult split_group(const Handle& handle, std::size_t color, std::size_t key, const shardkit::Call& call) {
    struct Wish {
        std::size_t color;
        std::size_t key;
    };
    const std::size_t size = handle.group->size();
    const Wish own{color, key};
    shardkit::detail::List<Wish> wishes(size);  // allocated here: nothing may throw inside a round
    const auto exchange = [&](const auto& published, auto read) {
        const Seat seat(handle);
        // NOLINTNEXTLINE(bugprone-sizeof-expression): addresses are published too
        Round round(seat, call, &published, sizeof(published));
        if (!round.agreed()) { round.leave_and_throw(); }
        read(round);
        round.leave();
    };
    exchange(own, [&](const Round& round) {
        for (std::size_t q = 0; q < size; ++q) { wishes[q] = *round.input<Wish>(q); }
    });

    const shared::detail::SplitGroups split(wishes, handle.rank);
    SplitResult result;
    result.rank = split.place;
    const std::size_t first = split.members.front();
    Group* made = nullptr;
    if (first == handle.rank) {
        std::vector<std::size_t> world_ranks;
        for (const std::size_t member : split.members) { world_ranks.push_back(handle.world_rank(member)); }
        made = &handle.world->make_group(std::move(world_ranks));
    }
    const Group* group = nullptr;
    exchange(made, [&](const Round& round) { group = *round.input<Group*>(first); });
    result.group = handle.world->take_group(*group);
    return result;
}

}  // namespace shardkit::threads::detail
