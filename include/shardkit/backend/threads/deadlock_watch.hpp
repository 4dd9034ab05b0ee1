// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/backend/threads/rank_state.hpp>

namespace shardkit::threads::detail {

/// Detects that every running rank waits for another one, for example because two ranks called verbs of two
/// communicators in different orders.
///
/// Two checks decide. If each rank sleeps in the same wait at both of them, and its word has still not reached its
/// target at the second one, then all of them slept in between, and no rank was left to wake another. The same holds
/// for the threads of its streams, which may also be idle. A rank that computes is never part of a deadlock.
class DeadlockWatch {
  public:
    explicit DeadlockWatch(std::span<const RankState> states) : states_(states), seen_(states.size()) {}

    /// Checks once. Returns whether all ranks wait for each other.
    /// @pre the caller holds the World's mutex, so that no rank ends meanwhile
    bool look() {
        bool all_stuck = true;
        bool unchanged = true;
        for (std::size_t rank = 0; rank < states_.size(); ++rank) {
            if (states_[rank].fate != Fate::running) { continue; }
            const std::uint64_t progress = states_[rank].progress();
            all_stuck = all_stuck && states_[rank].stuck();
            unchanged = unchanged && progress == seen_[rank];
            seen_[rank] = progress;
        }
        const bool certain = all_stuck && unchanged && was_stuck_;
        was_stuck_ = all_stuck;
        return certain;
    }

  private:
    std::span<const RankState> states_;
    std::vector<std::uint64_t> seen_;
    bool was_stuck_ = false;
};

}  // namespace shardkit::threads::detail
