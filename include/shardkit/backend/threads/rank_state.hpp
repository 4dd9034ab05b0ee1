// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <shardkit/backend/host/command_queue.hpp>
#include <shardkit/backend/threads/launch_options.hpp>
#include <shardkit/backend/threads/wait_word.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/detail/owned.hpp>
#include <shardkit/detail/range.hpp>

namespace shardkit::threads::detail {

/// Why ranks cannot go on: the world rank that caused it, and a sentence for messages.
struct Failure {
    std::size_t rank = 0;
    std::string text;
};

/// The state of a rank's function.
enum class Fate : std::uint8_t { running, returned, failed };

/// The thread of a rank that makes a call: the rank's own, or that of one of its streams.
enum class Caller : std::uint8_t { rank, communication, reduction };
/// The number of streams that a rank has beside its own thread, with LaunchOptions::overlap.
inline constexpr std::size_t stream_threads = 2;
/// Returns the number of a rank's threads, including its own.
constexpr std::size_t threads_of_rank(Overlap overlap) noexcept {
    return overlap == Overlap::threads ? 1 + stream_threads : 1;
}

/// A World's state for one thread that waits. `stopped_by` is guarded by the World's mutex, `record` is atomic, the
/// rest is used only by the thread.
struct alignas(padding) ThreadState {
    WaitRecord record;
    SpinBudget spins;
    std::optional<Failure> stopped_by;  ///< the cause of this thread's last PeerError
};

/// The state of a rank and of its own thread. `fate` and `ended_before` are guarded by the World's mutex; the journal
/// is used only by the rank's own thread.
struct RankState : ThreadState {
    alignas(padding) engine::Journal journal;
    Fate fate = Fate::running;
    std::size_t ended_before = 0;  ///< number of ranks whose functions ended before this one's
    std::array<ThreadState, stream_threads> streams;
    std::array<shardkit::detail::Owned<host::detail::CommandQueue>, stream_threads>
        queues;  ///< null without Overlap::threads

    static constexpr std::size_t index(Caller caller) noexcept { return static_cast<std::size_t>(caller) - 1; }
    ThreadState& thread(Caller caller) noexcept { return caller == Caller::rank ? *this : streams[index(caller)]; }
    Stream stream(Caller caller) const noexcept {
        const auto& queue = queues[index(caller)];
        return queue ? Stream(*queue) : Stream();
    }

    /// Returns whether no thread of this rank can go on by itself: its own thread waits, for peers or for its
    /// streams, and those of the streams wait or are idle.
    bool stuck() const noexcept {
        bool waits = record.stuck();
        for (std::size_t i = 0; i < stream_threads; ++i) {
            if (!queues[i]) { continue; }
            waits = waits || queues[i]->submitter_is_stuck();
            if (!queues[i]->rests() && !streams[i].record.stuck()) { return false; }
        }
        return waits;
    }
    /// Returns a number that stays equal only if nothing that `stuck` checks has changed in between.
    std::uint64_t progress() const noexcept {
        std::uint64_t all = record.generation();
        for (std::size_t i = 0; i < stream_threads; ++i) {
            if (queues[i]) { all += queues[i]->progress() + streams[i].record.generation(); }
        }
        return all;
    }
    /// Returns the failure with cause `rank` that ended a wait of this rank; null if there is none. @pre the World's
    /// mutex is held
    std::optional<Failure>* told_of(std::size_t rank) noexcept {
        const auto is_told = [&](const ThreadState& thread) {
            return thread.stopped_by && thread.stopped_by->rank == rank;
        };
        if (is_told(*this)) { return &stopped_by; }
        ThreadState* const found = shardkit::detail::first_that(streams, is_told);
        return found == nullptr ? nullptr : &found->stopped_by;
    }
};

}  // namespace shardkit::threads::detail
