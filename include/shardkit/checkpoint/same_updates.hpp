// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include <shardkit/checkpoint/saved_group.hpp>
#include <shardkit/checkpoint/together.hpp>
#include <shardkit/comm/statement.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit::detail {

/// That every rank has made the same updates of the groups, of which a save would write a mixture otherwise.
/// Collective over the world. @throws UsageError, on every rank, with what differs and two ranks' values
inline void require_same_updates(RankWorld& world, std::string_view verb,
                                 const std::vector<std::unique_ptr<SavedGroup>>& groups, SourceLocation where) {
    StatementHash mine = 0;
    for (const auto& group : groups) { mine = statement_hash(mine, group->statements().updates()); }
    const auto all = world.gather(mine, where);
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
        if (all[rank] == all[0]) { continue; }
        Statements own;
        for (const auto& group : groups) {
            const Statements its = group->statements().list_updates();
            own.insert(own.end(), its.begin(), its.end());
        }
        const auto [first, other] =
            stated_apart(own, 0, rank, where, [&](const StatementPage& page) { return world.gather(page, where); });
        throw_usage_error(where, verb, ": the ranks disagree in what was updated before: rank 0 saves", first,
                          ", rank ", rank, " saves", other);
    }
}

}  // namespace shardkit::detail
