// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <shardkit/backend/threads/call.hpp>
#include <shardkit/backend/threads/group.hpp>
#include <shardkit/backend/threads/group_end.hpp>
#include <shardkit/backend/threads/world.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::threads {

/// One rank's way through one collective: publish the call, wait until all have entered, look at the peers' calls,
/// let the caller move data, wait until all have left. Between entry and exit nothing throws.
/// An input of at most `carried_bytes` is published itself, not its address, and then nobody waits for the exit: what
/// peers read stays until all have entered the next collective. Peers' outputs may be written only if it is larger.
class Round {
  public:
    /// @throws PeerError when a peer cannot come any more
    Round(const GroupEnd& end, const shardkit::Call& call, const void* input, std::size_t input_bytes,
          void* output = nullptr)
        : end_(end), sequence_(own().sequence), carried_(input_bytes <= carried_bytes) {
        Published& published = own().published[sequence_ % 2];
        published.call = {call.signature, input, output, call.where};
        if (carried_ && input_bytes > 0) { std::memcpy(published.carried, input, input_bytes); }
        const std::uint32_t complete = next_phase();
        const Waiting waiting{call.signature.verb, &end_.axes, sequence_, call.where};
        const auto members = group().world_ranks();
        if (!group().word().enter(complete)) { world().throw_peer_error(self(), waiting, members); }
        world().wait_for_entry(self(), group().word(), complete, waiting, members);
        own().target = complete;
        ++own().sequence;
        while (other_ < group().size() && this->call(other_).signature == this->call(0).signature) { ++other_; }
    }
    Round(const Round&) = delete;
    Round& operator=(const Round&) = delete;

    const Call& call(std::size_t rank) const noexcept { return published(rank).call; }
    /// Where to read a rank's input. @pre agreed()
    const void* input(std::size_t rank) const noexcept {
        return carried_ ? published(rank).carried : published(rank).call.input;
    }

    /// Whether all ranks made the same call; the answer is the same on all of them.
    bool agreed() const noexcept { return other_ == group().size(); }

    /// Whether the inputs travel with the calls; once agreed, the same on all ranks.
    bool carried() const noexcept { return carried_; }

    /// After this the peers no longer look at this rank's memory, nor this rank at theirs.
    void leave() noexcept {
        if (!carried_) { wait_for_exit(); }
    }

    /// Leaves, then says who disagrees about what.
    [[noreturn]] void leave_and_throw() {
        const Call first = call(0);
        const Call second = call(other_);
        const Call own = call(end_.rank);
        wait_for_exit();
        throw CommError("threads", detail::concat(name(own.signature.verb), " over ", end_.axes),
                        detail::concat("the ranks disagree in call ", sequence_, ": rank ", end_.world_rank(0),
                                       " calls ", describe(first.signature, first.where), ", rank ",
                                       end_.world_rank(other_), " calls ", describe(second.signature, second.where)),
                        own.where);
    }

  private:
    void wait_for_exit() noexcept {
        const std::uint32_t complete = next_phase();
        group().word().leave(complete);
        group().word().wait_for_exit(complete, world().state(self()).spins);
        own().target = complete;
    }

    std::uint32_t next_phase() const noexcept {
        return WaitWord::advanced(own().target, static_cast<std::uint32_t>(group().size()));
    }

    World& world() const noexcept { return end_.world; }
    Group& group() const noexcept { return end_.group; }
    std::size_t self() const noexcept { return end_.world_rank(end_.rank); }
    Member& own() const noexcept { return group().member(end_.rank); }
    const Published& published(std::size_t rank) const noexcept {
        return group().member(rank).published[sequence_ % 2];
    }

    GroupEnd end_;
    std::uint64_t sequence_;
    bool carried_;
    std::size_t other_ = 1;  // the lowest rank whose call differs from rank 0's
};

}  // namespace shardkit::threads
