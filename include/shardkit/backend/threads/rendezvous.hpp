// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/shared/round.hpp>
#include <shardkit/backend/shared/verbs.hpp>
#include <shardkit/backend/threads/group.hpp>
#include <shardkit/backend/threads/wait_word.hpp>
#include <shardkit/backend/threads/world.hpp>
#include <shardkit/comm/agreement.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/uneven_counts.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::threads::detail {

/// A rank's seat in a group of threads.
class Seat {
  public:
    using Member = detail::Member;
    using Word = WaitWord;

    /// Takes the seat of a handle in its group's meeting.
    /// @pre `handle` outlives the seat
    explicit Seat(const GroupHandle& handle) noexcept : handle_(handle) {}

    std::size_t rank() const noexcept { return handle_.rank; }
    std::size_t size() const noexcept { return handle_.group->size(); }
    Member* members() const noexcept { return handle_.group->members(); }
    Word& word() const noexcept { return handle_.group->word(); }
    template <class P>
    P* at(std::size_t /*rank*/, P* address) const noexcept {
        return address;
    }
    bool sees(std::size_t /*rank*/, const void* /*address*/) const noexcept { return true; }

    /// Waits until all ranks have entered.
    /// @throws PeerError when a peer cannot come any more
    void wait(const shardkit::Call& call, std::uint32_t target) const {
        handle_.world->wait_for_entry(handle_, word(), target, call, handle_.group->world_ranks());
    }
    [[noreturn]] void refuse(const shardkit::Call& call) const {
        handle_.world->throw_peer_error(handle_, call, handle_.group->world_ranks());
    }
    /// Waits for the exit. A rank that has entered also leaves: nothing in between throws.
    void wait_for_exit(const shardkit::Call&, std::uint32_t target) const noexcept {
        word().wait_for_exit(target, handle_.thread->spins);
    }
    template <class Disagreement>
    [[gnu::cold]] std::string explain(const Disagreement& found) const {
        std::pair<std::string, std::string> stated;
        if (shardkit::detail::differ_in_statements(found.first.signature, found.second.signature)) {
            const auto first = statements(0, found.first);
            const auto second = statements(found.other, found.second);
            stated = shardkit::detail::stated_apart(0, 1, found.first.where, [&](std::size_t i) {
                return std::array{shardkit::detail::StatementRecord(first, i),
                                  shardkit::detail::StatementRecord(second, i)};
            });
        }
        return shardkit::detail::disagreement(shardkit::detail::concat(" in call ", found.sequence),
                                              handle_.world_rank(0), found.first.text(stated.first),
                                              handle_.world_rank(found.other), found.second.text(stated.second));
    }
    template <class Disagreement>
    [[noreturn, gnu::cold]] void throw_disagreement(const Disagreement& found, const std::string& said) const {
        throw CommError("threads", shardkit::detail::concat(name(found.own.signature.verb), " over ", handle_.axes()),
                        said, found.own.where);
    }

  private:
    /// Returns what a rank stated in that call.
    shardkit::detail::Statements statements(std::size_t rank, const shared::detail::Call& call) const {
        return handle_.world->state(handle_.world_rank(rank)).journal.statements().list(call.signature.argument);
    }

    const GroupHandle& handle_;
};

using Round = shared::detail::Round<Seat>;

/// What a rank shows its peers in an uneven all-to-all.
struct UnevenInput : shared::detail::UnevenInput {
    const std::size_t* send_counts;
    const std::size_t* receive_counts;
};
static_assert(sizeof(UnevenInput) <= carried_bytes);

/// Returns where in rank q's buffer its piece for this rank begins.
inline std::size_t begin_of_piece(const Round& round, std::size_t q) noexcept {
    const std::size_t* const counts = round.input<UnevenInput>(q)->send_counts;
    return std::accumulate(counts, counts + round.rank(), std::size_t{0});
}

/// Checks that each rank sends what its peers receive.
/// @throws CommError, on every rank, with the first two ranks whose counts differ
inline void require_matching_counts(const GroupHandle& handle, Round& round) {
    const auto shown = [&](std::size_t q) { return round.input<UnevenInput>(q); };
    std::uint64_t balance = 0;
    for (std::size_t q = 0; q < round.size(); ++q) { balance += shown(q)->balance; }
    if (balance == 0) { return; }
    const auto apart = shardkit::detail::counts_apart(
        round.size(), [&](std::size_t from, std::size_t to) { return shown(from)->send_counts[to]; },
        [&](std::size_t to, std::size_t from) { return shown(to)->receive_counts[from]; });
    const std::string said = shardkit::detail::disagreement(
        shardkit::detail::concat(" in call ", round.sequence()), apart.value(),
        [&](std::size_t q, std::string_view stated) { return round.call(q).text(stated); },
        [&](std::size_t q) { return handle.world_rank(q); });
    const shared::detail::Call own = round.call(round.rank());
    round.meet();
    throw CommError("threads", shardkit::detail::concat(name(own.signature.verb), " over ", handle.axes()), said,
                    own.where);
}

/// Throws on either end that a message had another type or count than the receiver expected.
[[noreturn, gnu::cold]] inline void throw_refused(const GroupHandle& handle, Verb verb, const Message& message,
                                                  std::size_t from, std::size_t to, SourceLocation where) {
    throw CommError("threads", shardkit::detail::concat(name(verb), " over ", handle.axes()),
                    shardkit::detail::disagreement(
                        "", handle.world_rank(from), describe(message.sent.signature, message.sent.where),
                        handle.world_rank(to), describe(message.expected.signature, message.expected.where)),
                    where);
}

/// Offers a message of this rank to another one, through a handle that must outlive the offer. If an exception leaves
/// its scope, the message is taken back.
class Post : shardkit::detail::NotCopied {
  public:
    /// Posts the message; returns at once.
    /// @throws PeerError when the receiver cannot come any more
    Post(const GroupHandle& handle, std::size_t to, const Message& message)
        : handle_(handle),
          to_(to),
          channel_(handle.group->channel(handle.rank, to)),
          base_(channel_.base()),
          message_(message) {
        pending_ = channel_.post(base_, message_);
        if (!pending_) { handle_.world->throw_peer_error(handle, message_.sent, needed()); }
    }
    ~Post() {
        if (pending_) { channel_.retract(base_, budget()); }
    }

    /// Waits until the receiver has the data.
    /// @throws PeerError when it cannot come any more; CommError when it expects another type or count
    void complete() {
        handle_.world->wait_for_entry(handle_, channel_.word(), Channel::claimed(base_), message_.sent, needed());
        channel_.word().wait_for_exit(Channel::consumed(base_), budget());
        pending_ = false;
        if (message_.refused) {
            throw_refused(handle_, Verb::send, message_, handle_.rank, to_, message_.sent.where);
        }
    }

  private:
    SpinBudget& budget() const noexcept { return handle_.thread->spins; }
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
    const auto needed = handle.group->world_ranks().subspan(from, 1);
    Message* message = nullptr;
    std::uint32_t base = 0;
    while (message == nullptr) {  // again if a sender that cannot go on took its message back
        base = channel.base();
        handle.world->wait_for_entry(handle, channel.word(), Channel::posted(base), call, needed);
        message = channel.claim(base);
        if (message == nullptr && channel.word().poisoned()) { handle.world->throw_peer_error(handle, call, needed); }
    }
    if (message->sent.signature.in != expected.in || message->sent.signature.count != expected.count) {
        message->refused = true;
        message->expected = call;
        const Message refused = *message;
        channel.consume(base);
        throw_refused(handle, Verb::receive, refused, from, handle.rank, call.where);
    }
    const std::size_t bytes = expected.count * size_of(expected.in);
    // The bytes as if each rank of the group sent as many, in a ring.
    const host::detail::Store store = host::detail::store_for(2 * handle.group->size() * bytes);
    host::detail::copy_elements(static_cast<const std::byte*>(message->data), static_cast<std::byte*>(to), bytes,
                                store);
    host::detail::finish(store);
    channel.consume(base);
}

}  // namespace shardkit::threads::detail
