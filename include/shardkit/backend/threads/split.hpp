// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <utility>
#include <vector>

#include <shardkit/backend/threads/call.hpp>
#include <shardkit/backend/threads/group.hpp>
#include <shardkit/backend/threads/group_end.hpp>
#include <shardkit/backend/threads/round.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit::threads {

/// Where a rank finds itself after a split, and what finding out has cost.
struct SplitResult {
    Group* group = nullptr;
    std::size_t rank = 0;
    std::size_t payload = 0;
    std::size_t moved = 0;
};

/// Collective over `end.group`: ranks with the same color form a group, ordered by key, then by rank. Its first
/// member makes it, the others take its address.
/// @throws std::invalid_argument when color is 2^63 or more; otherwise as every collective
inline SplitResult split_group(const GroupEnd& end, std::size_t color, std::size_t key, SourceLocation where) {
    if (color >> 63U != 0) {
        throw_invalid_argument(where, "split over ", end.axes, ": color ", color, ", expected less than 2^63");
    }
    struct Wish {
        std::size_t color;
        std::size_t key;
    };
    struct Made {
        Group* group;
    };
    struct Place {
        std::size_t key;
        std::size_t rank;
        auto operator<=>(const Place&) const = default;
    };
    const std::size_t size = end.group.size();
    const Wish own{color, key};
    std::vector<Wish> wishes(size);  // made here: nothing may throw inside a round
    const auto exchange = [&](const auto& published, auto read) {
        Round round(end, {.signature = {.verb = Verb::split},
                          .input = &published,
                          .input_bytes = sizeof(published),
                          .where = where});
        if (!round.agreed()) { round.leave_and_throw(); }
        read(round);
        round.leave();
    };
    exchange(own, [&](const Round& round) {
        for (std::size_t q = 0; q < size; ++q) { wishes[q] = *static_cast<const Wish*>(round.input(q)); }
    });

    std::vector<Place> members;
    for (std::size_t q = 0; q < size; ++q) {
        if (wishes[q].color == color) { members.push_back({wishes[q].key, q}); }
    }
    std::sort(members.begin(), members.end());
    SplitResult result;
    const std::size_t first = members.front().rank;
    result.rank =
        static_cast<std::size_t>(std::find(members.begin(), members.end(), Place{key, end.rank}) - members.begin());
    if (first == end.rank) {
        std::vector<std::size_t> world_ranks;
        for (const Place& member : members) { world_ranks.push_back(end.world_rank(member.rank)); }
        result.group = &end.world.make_group(std::move(world_ranks));
    }
    const Made made{result.group};
    exchange(made, [&](const Round& round) { result.group = static_cast<const Made*>(round.input(first))->group; });
    result.payload = size * sizeof(Wish);
    result.moved = (size - 1) * sizeof(Wish);
    return result;
}

}  // namespace shardkit::threads
