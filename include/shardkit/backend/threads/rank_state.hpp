// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <shardkit/backend/threads/failure.hpp>
#include <shardkit/backend/threads/padding.hpp>
#include <shardkit/backend/threads/spin_budget.hpp>
#include <shardkit/backend/threads/wait_record.hpp>
#include <shardkit/comm/journal.hpp>

namespace shardkit::threads {

/// How far a rank's function has got.
enum class Fate : std::uint8_t { running, returned, failed };

/// What a World keeps for one rank. `fate`, `ended_before` and `stopped_by` are guarded by the World's mutex,
/// `record` is atomic, the rest belongs to the rank's own thread.
struct alignas(padding) RankState {
    WaitRecord record;
    alignas(padding) Journal journal;
    SpinBudget spins;
    Fate fate = Fate::running;
    std::size_t ended_before = 0;       ///< ranks whose functions ended before this one's
    std::optional<Failure> stopped_by;  ///< what the last PeerError of this rank was about
};

}  // namespace shardkit::threads
