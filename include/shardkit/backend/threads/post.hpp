// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/backend/threads/channel.hpp>
#include <shardkit/backend/threads/group_end.hpp>
#include <shardkit/backend/threads/message.hpp>
#include <shardkit/backend/threads/throw_refused.hpp>
#include <shardkit/backend/threads/waiting.hpp>

namespace shardkit::threads {

/// A message that this rank has offered to another; it is taken back if the offer's scope is left by an exception.
class Post {
  public:
    /// Returns at once. @throws PeerError when the receiver cannot come any more
    Post(const GroupEnd& end, std::size_t to, const Message& message)
        : end_(end), to_(to), channel_(end.group.channel(end.rank, to)), base_(channel_.base()), message_(message) {
        pending_ = channel_.post(base_, message_);
        if (!pending_) { end_.world.throw_peer_error(end.world_rank(end.rank), waiting(), needed()); }
    }
    Post(const Post&) = delete;
    Post& operator=(const Post&) = delete;
    ~Post() {
        if (pending_) { channel_.retract(base_, budget()); }
    }

    /// Waits until the receiver has the data.
    /// @throws PeerError when it cannot come any more; CommError when it expects another type or count
    void complete() {
        end_.world.wait_for_entry(end_.world_rank(end_.rank), channel_.word(), Channel::claimed(base_), waiting(),
                                  needed());
        channel_.word().wait_for_exit(Channel::consumed(base_), budget());
        pending_ = false;
        if (message_.refused) { throw_refused(end_, Verb::send, message_, end_.rank, to_, message_.where); }
    }

  private:
    Waiting waiting() const noexcept { return {Verb::send, &end_.axes, base_ / 4, message_.where}; }
    SpinBudget& budget() const noexcept { return end_.world.state(end_.world_rank(end_.rank)).spins; }
    std::span<const std::size_t> needed() const noexcept { return end_.group.world_ranks().subspan(to_, 1); }

    GroupEnd end_;
    std::size_t to_;
    Channel& channel_;
    std::uint32_t base_;
    Message message_;
    bool pending_ = false;
};

}  // namespace shardkit::threads
