// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/threads/call.hpp>
#include <shardkit/backend/threads/channel.hpp>
#include <shardkit/backend/threads/group.hpp>
#include <shardkit/backend/threads/wait_record.hpp>
#include <shardkit/backend/threads/world.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::threads::detail {

/// One rank's way through one collective: publish the call, wait until all have entered, look at the peers' calls,
/// let the caller move data, wait until all have left. Between entry and exit nothing throws.
/// An input of at most `carried_bytes` is published itself, not its address, and then nobody waits for the exit: what
/// peers read stays until all have entered the next collective. Peers' outputs may be written only if it is larger.
class Round {
  public:
    /// @pre `handle` outlives the round   @throws PeerError when a peer cannot come any more
    Round(const GroupHandle& handle, const shardkit::Call& call, const void* input, std::size_t input_bytes,
          void* output = nullptr)
        : handle_(handle),
          size_(handle.group->size()),
          members_(handle.group->members()),
          own_(handle.group->members()[handle.rank]),
          sequence_(own_.sequence),
          carried_(input_bytes <= carried_bytes) {
        Published& published = own_.published[parity()];
        published.call = {call.signature, input, output, call.where, call.subject};
        if (carried_ && input_bytes > 0) { std::memcpy(published.carried, input, input_bytes); }
        WaitWord& word = handle.group->word();
        const std::uint32_t complete = next_phase();
        if (!word.enter(complete)) { refuse(call); }
        if (word.progress(complete) != Progress::reached) { wait(call, complete); }
        own_.target = complete;
        own_.sequence = sequence_ + 1;
        const Signature& first = this->call(0).signature;
        while (other_ < size_ && this->call(other_).signature == first) { ++other_; }
    }
    Round(const Round&) = delete;
    Round& operator=(const Round&) = delete;

    const Call& call(std::size_t rank) const noexcept { return published(rank).call; }
    /// Where to read a rank's input. @pre agreed()
    const void* input(std::size_t rank) const noexcept {
        return carried_ ? published(rank).carried : published(rank).call.input;
    }

    /// Whether all ranks made the same call; the answer is the same on all of them.
    bool agreed() const noexcept { return other_ == size_; }

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
        const Call own = call(handle_.rank);
        wait_for_exit();
        throw CommError("threads", shardkit::detail::concat(name(own.signature.verb), " over ", handle_.axes()),
                        shardkit::detail::concat("the ranks disagree in call ", sequence_, ": rank ",
                                                 handle_.world_rank(0), " calls ", text(first), ", rank ",
                                                 handle_.world_rank(other_), " calls ", text(second)),
                        own.where);
    }

  private:
    static std::string text(const Call& call) {
        return describe(call.signature, call.where, shardkit::detail::text_of(call.subject));
    }
    [[noreturn]] void refuse(const shardkit::Call& call) const {
        handle_.world->throw_peer_error(self(), waiting(call), handle_.group->world_ranks());
    }
    void wait(const shardkit::Call& call, std::uint32_t complete) const {
        handle_.world->wait_for_entry(self(), handle_.group->word(), complete, waiting(call),
                                      handle_.group->world_ranks());
    }
    Waiting waiting(const shardkit::Call& call) const noexcept {
        return {call.signature.verb, &handle_.axes(), sequence_, call.where};
    }

    void wait_for_exit() noexcept {
        const std::uint32_t complete = next_phase();
        WaitWord& word = handle_.group->word();
        word.leave(complete);
        word.wait_for_exit(complete, handle_.world->state(self()).spins);
        own_.target = complete;
    }

    std::uint32_t next_phase() const noexcept {
        return WaitWord::advanced(own_.target, static_cast<std::uint32_t>(size_));
    }
    std::size_t parity() const noexcept { return sequence_ % 2; }
    std::size_t self() const noexcept { return handle_.world_rank(handle_.rank); }
    const Published& published(std::size_t rank) const noexcept { return members_[rank].published[parity()]; }

    const GroupHandle& handle_;
    std::size_t size_;
    const Member* members_;
    Member& own_;
    std::uint64_t sequence_;
    bool carried_;
    std::size_t other_ = 1;  // the lowest rank whose call differs from rank 0's
};

/// Says on either end that a message was of another type or count than the receiver expected.
[[noreturn]] inline void throw_refused(const GroupHandle& handle, Verb verb, const Message& message, std::size_t from,
                                       std::size_t to, SourceLocation where) {
    throw CommError(
        "threads", shardkit::detail::concat(name(verb), " over ", handle.axes()),
        shardkit::detail::concat("the ranks disagree: rank ", handle.world_rank(from), " calls ",
                                 describe(message.signature, message.where), ", rank ", handle.world_rank(to),
                                 " calls ", describe(message.expected, message.expected_at)),
        where);
}

/// A message that this rank has offered to another, through a handle that outlives it; it is taken back if the
/// offer's scope is left by an exception.
class Post {
  public:
    /// Returns at once. @throws PeerError when the receiver cannot come any more
    Post(const GroupHandle& handle, std::size_t to, const Message& message)
        : handle_(handle),
          to_(to),
          channel_(handle.group->channel(handle.rank, to)),
          base_(channel_.base()),
          message_(message) {
        pending_ = channel_.post(base_, message_);
        if (!pending_) { handle_.world->throw_peer_error(handle.world_rank(handle.rank), waiting(), needed()); }
    }
    Post(const Post&) = delete;
    Post& operator=(const Post&) = delete;
    ~Post() {
        if (pending_) { channel_.retract(base_, budget()); }
    }

    /// Waits until the receiver has the data.
    /// @throws PeerError when it cannot come any more; CommError when it expects another type or count
    void complete() {
        handle_.world->wait_for_entry(handle_.world_rank(handle_.rank), channel_.word(), Channel::claimed(base_),
                                      waiting(), needed());
        channel_.word().wait_for_exit(Channel::consumed(base_), budget());
        pending_ = false;
        if (message_.refused) { throw_refused(handle_, Verb::send, message_, handle_.rank, to_, message_.where); }
    }

  private:
    Waiting waiting() const noexcept { return {Verb::send, &handle_.axes(), base_ / 4, message_.where}; }
    SpinBudget& budget() const noexcept { return handle_.world->state(handle_.world_rank(handle_.rank)).spins; }
    std::span<const std::size_t> needed() const noexcept { return handle_.group->world_ranks().subspan(to_, 1); }

    const GroupHandle& handle_;
    std::size_t to_;
    Channel& channel_;
    std::uint32_t base_;
    Message message_;
    bool pending_ = false;
};

/// Waits for a message from rank `from` and copies it to `to`.
/// @throws PeerError when it cannot come any more; CommError when it is of another type or count
inline void take(const GroupHandle& handle, std::size_t from, void* to, const shardkit::Call& call) {
    const Signature& expected = call.signature;
    Channel& channel = handle.group->channel(from, handle.rank);
    const std::size_t self = handle.world_rank(handle.rank);
    const auto needed = handle.group->world_ranks().subspan(from, 1);
    Message* message = nullptr;
    std::uint32_t base = 0;
    while (message == nullptr) {  // again when a sender that cannot go on took its message back
        base = channel.base();
        const Waiting waiting{Verb::receive, &handle.axes(), base / 4, call.where};
        handle.world->wait_for_entry(self, channel.word(), Channel::posted(base), waiting, needed);
        message = channel.claim(base);
        if (message == nullptr && channel.word().poisoned()) {
            handle.world->throw_peer_error(self, waiting, needed);
        }
    }
    if (message->signature.in != expected.in || message->signature.count != expected.count) {
        message->refused = true;
        message->expected = expected;
        message->expected_at = call.where;
        const Message refused = *message;
        channel.consume(base);
        throw_refused(handle, Verb::receive, refused, from, handle.rank, call.where);
    }
    const std::size_t bytes = expected.count * size_of(expected.in);
    // As when each rank of the group sends as much, in a ring.
    const host::detail::Store store = host::detail::store_for(2 * handle.group->size() * bytes);
    host::detail::copy_elements(static_cast<const std::byte*>(message->data), static_cast<std::byte*>(to), bytes,
                                store);
    host::detail::finish(store);
    channel.consume(base);
}

}  // namespace shardkit::threads::detail
