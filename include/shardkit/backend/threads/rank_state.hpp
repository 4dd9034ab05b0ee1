// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <shardkit/backend/threads/wait_record.hpp>
#include <shardkit/backend/threads/wait_word.hpp>
#include <shardkit/comm/journal.hpp>

namespace shardkit::threads::detail {

/// Why ranks cannot go on: the rank that began it, by its number in the world, and the sentence for messages.
struct Failure {
    std::size_t rank = 0;
    std::string text;
};

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

}  // namespace shardkit::threads::detail
