// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/backend/shared/round.hpp>
#include <shardkit/backend/threads/channel.hpp>
#include <shardkit/backend/threads/rank_state.hpp>
#include <shardkit/backend/threads/wait_word.hpp>
#include <shardkit/comm/journal.hpp>

namespace shardkit::threads::detail {

class World;

/// An input of at most so many bytes travels with the call: its rank need not wait until the peers have read it.
inline constexpr std::size_t carried_bytes = 256;

/// What one rank has in a group.
using Member = shared::detail::Member<carried_bytes>;

/// With LaunchOptions::overlap or without.
enum class Meetings : std::uint8_t { of_ranks, of_ranks_and_streams };

/// Ranks that communicate: the state behind every communicator over the same members. Owned by the World.
/// What ranks give to streams meets in groups of its own, one for each stream, so that neither waits for the other's
/// order.
class Group {
  public:
    explicit Group(std::vector<std::size_t> world_ranks, Meetings meetings = Meetings::of_ranks)
        : world_ranks_(std::move(world_ranks)),
          size_(world_ranks_.size()),
          channels_(std::make_unique<Channel[]>(size() * size())),
          members_(std::make_unique<Member[]>(size())) {
        if (meetings == Meetings::of_ranks) { return; }
        for (auto& stream : streams_) { stream = std::make_unique<Group>(world_ranks_); }
    }

    std::size_t size() const noexcept { return size_; }
    /// The world's numbers of the members, in the group's order.
    std::span<const std::size_t> world_ranks() const noexcept { return {world_ranks_.data(), world_ranks_.size()}; }
    WaitWord& word() noexcept { return word_; }
    /// Pieces of the current collective that ranks have taken.
    std::atomic<std::uint32_t>& taken() noexcept { return taken_; }
    Member* members() noexcept { return members_.get(); }
    Channel& channel(std::size_t from, std::size_t to) noexcept { return channels_[from * size() + to]; }
    /// Where calls meet that the callers of this kind make. @pre for streams: of_ranks_and_streams
    Group& of(Caller caller) noexcept { return caller == Caller::rank ? *this : *streams_[RankState::index(caller)]; }

    /// A call that was given to a stream uses the group until it has run, whether anybody holds it or not.
    void begin_use() noexcept { uses_.fetch_add(1, std::memory_order_relaxed); }
    void end_use() noexcept { uses_.fetch_sub(1, std::memory_order_release); }
    bool in_use() const noexcept { return uses_.load(std::memory_order_acquire) > 0; }

    /// Nothing that is incomplete will complete any more.
    void poison() noexcept {
        word_.poison();
        for (std::size_t i = 0; i < size() * size(); ++i) { channels_[i].word().poison(); }
        for (const auto& stream : streams_) {
            if (stream) { stream->poison(); }
        }
    }

    /// The same for what needs the rank with this number in the world; nothing if it is no member.
    void poison_calls_with(std::size_t world_rank) noexcept {
        const auto found = std::find(world_ranks_.begin(), world_ranks_.end(), world_rank);
        if (found == world_ranks_.end()) { return; }
        word_.poison();
        const auto gone = static_cast<std::size_t>(found - world_ranks_.begin());
        for (std::size_t peer = 0; peer < size(); ++peer) {
            channel(gone, peer).word().poison();
            channel(peer, gone).word().poison();
        }
        for (const auto& stream : streams_) {
            if (stream) { stream->poison_calls_with(world_rank); }
        }
    }

  private:
    alignas(padding) WaitWord word_;
    alignas(padding) std::atomic<std::uint32_t> taken_{0};
    alignas(padding) std::vector<std::size_t> world_ranks_;
    std::size_t size_;
    std::unique_ptr<Channel[]> channels_;  // before the members: the first that is too much for too many ranks
    std::unique_ptr<Member[]> members_;
    std::array<std::unique_ptr<Group>, stream_threads> streams_;  // null without overlap
    std::atomic<std::uint32_t> uses_{0};                          // by streams
};

/// One rank's end of a group, under one of its names, for one of its threads.
struct GroupHandle {
    World* world;
    Group* group;
    std::size_t rank;
    const CommunicatorLabel* label;
    ThreadState* thread;

    const std::string& axes() const noexcept { return label->axes; }
    std::size_t world_rank(std::size_t member) const noexcept { return group->world_ranks()[member]; }
};

}  // namespace shardkit::threads::detail
