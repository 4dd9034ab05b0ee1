// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/backend/shared/round.hpp>
#include <shardkit/backend/threads/launch_options.hpp>
#include <shardkit/backend/threads/rank_state.hpp>
#include <shardkit/backend/threads/wait_word.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/detail/owned.hpp>

namespace shardkit::threads::detail {

/// A message being sent. It is in the sender's stack frame: a sender returns only once the message is consumed,
/// withdrawn, or can no longer be claimed.
struct Message {
    shardkit::Call sent{};
    const void* data = nullptr;
    /// Whether the receiver refused; the receiver sets it before it consumes a message that it did not expect.
    bool refused = false;
    shardkit::Call expected{};
};

/// Passes messages from one rank to another: a rendezvous for one message at a time.
/// The word counts four steps per message; the step of the current message is count % 4: free (0), posted (1) by the
/// sender, claimed (2) by the receiver, free again once consumed. A poisoned word refuses posting and claiming, but
/// not consuming.
class Channel {
  public:
    WaitWord& word() noexcept { return word_; }
    static constexpr std::uint32_t posted(std::uint32_t base) noexcept { return WaitWord::advanced(base, 1); }
    static constexpr std::uint32_t claimed(std::uint32_t base) noexcept { return WaitWord::advanced(base, 2); }
    static constexpr std::uint32_t consumed(std::uint32_t base) noexcept { return WaitWord::advanced(base, 4); }

    /// Returns the count at which the current message began.
    std::uint32_t base() const noexcept { return word_.count() & ~3U; }

    /// Posts a message for the sender; returns false once poisoned.
    bool post(std::uint32_t base, Message& message) noexcept {
        message_ = &message;
        return word_.exchange(base, posted(base));
    }
    /// Withdraws the message of a sender that cannot go on: takes an unclaimed message back, or waits until a claimed
    /// one is consumed. After this, the receiver no longer reads the message.
    void retract(std::uint32_t base, SpinBudget budget) noexcept {
        if (word_.exchange(posted(base), consumed(base))) { return; }
        const bool cannot_be_claimed = word_.count() == posted(base);  // poisoned
        if (!cannot_be_claimed) { word_.wait_for_exit(consumed(base), budget); }
    }

    /// Claims a message for the receiver; null if there is none to claim (poisoned, or withdrawn meanwhile).
    Message* claim(std::uint32_t base) noexcept {
        return word_.exchange(posted(base), claimed(base)) ? message_ : nullptr;
    }
    void consume(std::uint32_t base) noexcept { word_.leave(consumed(base), 2); }

  private:
    WaitWord word_;
    Message* message_ = nullptr;
};

/// The largest input that is carried with the call: its rank need not wait until the peers have read it. The sum of a
/// global norm (560 bytes) is carried.
inline constexpr std::size_t carried_bytes = 576;

/// A rank's state where ranks meet.
using Member = shared::detail::Member<carried_bytes>;

class World;

/// A group of ranks: the state behind every communicator over the same members. Owned by the World. Calls on streams
/// meet in groups of their own, one for each stream, so that streams do not wait for each other.
class Group {
  public:
    explicit Group(std::vector<std::size_t> world_ranks, Overlap overlap = Overlap::none)
        : world_ranks_(std::move(world_ranks)),
          size_(world_ranks_.size()),
          channels_(new Channel[size() * size()]()),
          members_(new Member[size()]()) {
        for (std::size_t i = 0; i < stream_threads; ++i) {
            if (overlap != Overlap::none) { streams_[i] = shardkit::detail::Owned<Group>(new Group(world_ranks_)); }
        }
    }

    std::size_t size() const noexcept { return size_; }
    /// Returns the members' ranks in the world, in the group's order.
    std::span<const std::size_t> world_ranks() const noexcept { return {world_ranks_.data(), world_ranks_.size()}; }
    /// Return where the calls of its ranks meet, one collective after the other.
    WaitWord& word() noexcept { return word_; }
    Member* members() noexcept { return members_.get(); }
    Channel& channel(std::size_t from, std::size_t to) noexcept { return channels_[from * size() + to]; }
    /// Returns the group in which calls of this kind of caller meet. @pre for streams: an overlap
    Group& of(Caller caller) noexcept { return caller == Caller::rank ? *this : *streams_[RankState::index(caller)]; }

    /// Counts a call that was given to a stream. It uses the group until it has run, whether a communicator still
    /// exists or not.
    void begin_use() noexcept { uses_.fetch_add(1, std::memory_order_acquire); }
    struct EndUse {
        Group& group;
        ~EndUse() { group.uses_.fetch_sub(1, std::memory_order_release); }
    };
    /// It writes the number: who then sees that a communicator ended saw the calls that were given before.
    bool in_use() noexcept { return uses_.fetch_add(0, std::memory_order_acq_rel) > 0; }

    /// Prevents all incomplete calls from completing.
    [[gnu::cold]] void poison() noexcept {
        word_.poison();
        for (std::size_t i = 0; i < size() * size(); ++i) { channels_[i].word().poison(); }
        for (const auto& stream : streams_) {
            if (stream) { stream->poison(); }
        }
    }

    /// Prevents the calls that need this rank of the world from completing; does nothing if it is no member.
    [[gnu::cold]] void poison_calls_with(std::size_t world_rank) noexcept {
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
    std::vector<std::size_t> world_ranks_;
    std::size_t size_;
    shardkit::detail::Owned<Channel[]>
        channels_;  // the largest part, allocated first: it fails first for too many ranks
    shardkit::detail::Owned<Member[]> members_;
    std::array<shardkit::detail::Owned<Group>, stream_threads> streams_;  // null without overlap
    std::atomic<std::uint32_t> uses_{0};                                  // number of uses by streams
    alignas(padding) WaitWord word_;
};

/// One rank's end of a group, under one of its names, for one of its threads.
struct GroupHandle {
    World* world;
    Group* group;
    std::size_t rank;
    const engine::CommunicatorLabel* label;
    ThreadState* thread;

    const std::string& axes() const noexcept { return label->axes; }
    std::size_t world_rank(std::size_t member) const noexcept { return group->world_ranks()[member]; }
};

}  // namespace shardkit::threads::detail
