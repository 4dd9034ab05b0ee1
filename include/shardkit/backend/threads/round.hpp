// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/backend/threads/call.hpp>
#include <shardkit/backend/threads/group.hpp>
#include <shardkit/backend/threads/group_end.hpp>
#include <shardkit/backend/threads/world.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::threads {

/// One rank's way through one collective: publish the call, wait until all have entered, look at the peers' calls,
/// let the caller move data, wait until all have left. Between entry and exit nothing throws.
class Round {
  public:
    /// @throws PeerError when a peer cannot come any more
    Round(const GroupEnd& end, Call call) : world_(end.world), group_(end.group), rank_(end.rank) {
        Member& own = group_.member(rank_);
        call.sequence = own.sequence;
        parity_ = static_cast<std::size_t>(own.sequence % 2);
        own.calls[parity_] = call;
        const std::uint32_t complete = next_phase();
        const Waiting waiting{call.signature.verb, call.axes, call.sequence, call.where};
        const std::size_t self = group_.world_ranks()[rank_];
        if (!group_.word().enter(complete)) { world_.throw_peer_error(self, waiting, group_.world_ranks()); }
        world_.wait_for_entry(self, group_.word(), complete, waiting, group_.world_ranks());
        own.target = complete;
        ++own.sequence;
        while (other_ < group_.size() && this->call(other_).signature == this->call(0).signature) { ++other_; }
    }
    Round(const Round&) = delete;
    Round& operator=(const Round&) = delete;

    const Call& call(std::size_t rank) const noexcept { return group_.member(rank).calls[parity_]; }

    /// Whether all ranks made the same call; the answer is the same on all of them.
    bool agreed() const noexcept { return other_ == group_.size(); }

    /// After this the peers no longer look at this rank's memory, nor this rank at theirs.
    void leave() noexcept {
        const std::uint32_t complete = next_phase();
        group_.word().leave(complete);
        group_.word().wait_for_exit(complete, world_.spins());
        group_.member(rank_).target = complete;
    }

    /// Leaves, then says who disagrees about what.
    [[noreturn]] void leave_and_throw() {
        const Call first = call(0);
        const Call second = call(other_);
        const Call own = call(rank_);
        leave();
        throw CommError(
            "threads", detail::concat(name(own.signature.verb), " over ", *own.axes),
            detail::concat("the ranks disagree in call ", own.sequence, ": rank ", group_.world_ranks()[0], " calls ",
                           describe(first.signature, first.where), ", rank ", group_.world_ranks()[other_], " calls ",
                           describe(second.signature, second.where)),
            own.where);
    }

  private:
    std::uint32_t next_phase() const noexcept {
        return WaitWord::advanced(group_.member(rank_).target, static_cast<std::uint32_t>(group_.size()));
    }

    World& world_;
    Group& group_;
    std::size_t rank_;
    std::size_t parity_ = 0;
    std::size_t other_ = 1;  // the lowest rank whose call differs from rank 0's
};

}  // namespace shardkit::threads
