// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <shardkit/backend/host/host_stream.hpp>
#include <shardkit/backend/threads/launch_options.hpp>
#include <shardkit/backend/threads/wait_record.hpp>
#include <shardkit/backend/threads/wait_word.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::threads::detail {

/// Says why ranks cannot go on: the rank that began it, by its number in the world, and the sentence for messages.
struct Failure {
    std::size_t rank = 0;
    std::string text;
};

/// Says how far a rank's function has got.
enum class Fate : std::uint8_t { running, returned, failed };

/// Says which thread of a rank makes a call: the rank's own, or that of one of its streams.
enum class Caller : std::uint8_t { rank, communication, reduction };
/// Counts the streams that a rank has beside its own, with LaunchOptions::overlap.
inline constexpr std::size_t stream_threads = 2;
/// Returns the number of a rank's threads, its own too.
constexpr std::size_t threads_of_rank(Overlap overlap) noexcept {
    return overlap == Overlap::threads ? 1 + stream_threads : 1;
}

/// Holds what a World keeps for one thread that waits. `stopped_by` is guarded by the World's mutex, `record` is
/// atomic, the rest belongs to the thread.
struct alignas(padding) ThreadState {
    WaitRecord record;
    SpinBudget spins;
    std::optional<Failure> stopped_by;  ///< what the last PeerError of this thread was about
};

/// Holds the same for a rank, whose own thread it is. `fate` and `ended_before` are guarded by the World's mutex, the
/// journal belongs to the rank's own thread.
struct RankState : ThreadState {
    alignas(padding) Journal journal;
    Fate fate = Fate::running;
    std::size_t ended_before = 0;  ///< ranks whose functions ended before this one's
    std::array<ThreadState, stream_threads> streams;
    std::array<std::unique_ptr<host::detail::CommandQueue>, stream_threads>
        queues;  ///< null without Overlap::threads

    static constexpr std::size_t index(Caller caller) noexcept { return static_cast<std::size_t>(caller) - 1; }
    ThreadState& thread(Caller caller) noexcept { return caller == Caller::rank ? *this : streams[index(caller)]; }
    host::HostStream stream(Caller caller) const noexcept {
        const auto& queue = queues[index(caller)];
        return queue ? host::HostStream(*queue) : host::HostStream();
    }

    /// Says whether no thread of this rank can go on by itself: its own waits, for peers or for its streams, and the
    /// streams' wait or have nothing to do.
    bool stuck() const noexcept {
        bool waits = record.stuck();
        for (std::size_t i = 0; i < stream_threads; ++i) {
            if (!queues[i]) { continue; }
            waits = waits || queues[i]->submitter_is_stuck();
            if (!queues[i]->rests() && !streams[i].record.stuck()) { return false; }
        }
        return waits;
    }
    /// Returns a number that is the same twice only where nothing of this rank that `stuck` looks at has moved in
    /// between.
    std::uint64_t progress() const noexcept {
        std::uint64_t all = record.generation();
        for (std::size_t i = 0; i < stream_threads; ++i) {
            if (queues[i]) { all += queues[i]->progress() + streams[i].record.generation(); }
        }
        return all;
    }
    /// Says what its threads wait for.
    /// @pre stuck()
    std::string describe() const {
        constexpr std::string_view names[stream_threads] = {"communication", "reduction"};
        std::string all = record.stuck() ? record.describe() : "";
        for (std::size_t i = 0; i < stream_threads; ++i) {
            if (!streams[i].record.stuck()) { continue; }
            all += shardkit::detail::concat(all.empty() ? "" : " and in ", streams[i].record.describe(), " on its ",
                                            names[i], " stream");
        }
        return all;
    }
    /// Returns what the rank was told of `rank` when it waited for peers; null: nothing. @pre the World's mutex is
    /// held
    std::optional<Failure>* told_of(std::size_t rank) noexcept {
        const auto is_told = [&](const ThreadState& thread) {
            return thread.stopped_by && thread.stopped_by->rank == rank;
        };
        if (is_told(*this)) { return &stopped_by; }
        const auto found = std::find_if(streams.begin(), streams.end(), is_told);
        return found == streams.end() ? nullptr : &found->stopped_by;
    }
};

}  // namespace shardkit::threads::detail
