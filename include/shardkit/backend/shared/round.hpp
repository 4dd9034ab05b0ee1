// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <shardkit/backend/shared/wait_word.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::shared::detail {

/// One rank's part in a collective, as its peers see it. Addresses are those of that rank.
struct Call {
    Signature signature{};
    const void* input = nullptr;
    void* output = nullptr;
    SourceLocation where{};
    const engine::CallSubject* subject = nullptr;  ///< in the rank's journal, which outlives the call

    std::string text(std::string_view stated) const {
        return describe(signature, where, shardkit::detail::text_of(subject), stated);
    }
};
static_assert(sizeof(Call) <= 64, "peers look at one cache line");

/// What a rank shows its peers in one collective: its call and, if it is small, its input in the lines after it.
template <std::size_t Carried>
struct alignas(padding) Published {
    alignas(64) Call call;
    alignas(64) std::byte carried[Carried];
};

/// One rank's state in a group. Only that rank writes it; its peers read `published`.
/// An input of at most `carried_bytes` is carried with the call: its rank need not wait until the peers have read it.
template <std::size_t Carried>
struct Member {
    static constexpr std::size_t carried_bytes = Carried;

    /// The current collective and the previous one: where nobody waits for the exit, a rank may publish its next call
    /// while a slower peer still reads this one. It cannot publish the one after that, for which all must have
    /// entered the next.
    Published<Carried> published[2];
    alignas(padding) std::uint64_t sequence = 0;  ///< number of collectives before the next one
    std::uint32_t target = 0;                     ///< count of the word at the end of the last phase
};

/// Takes one rank through one collective of ranks that read each other's memory: publishes the call, waits until all
/// have entered, reads the peers' calls, lets the caller move data, and waits until all have left. An input of at
/// most `carried_bytes` is itself published instead of its address, and then nobody waits for the exit: what peers
/// read stays valid until all have entered the next collective. Peers' outputs may be written only if the input is
/// larger.
/// `Seat` is the rank's place among them, and defines how an engine waits:
///     Member, rank(), size(), members(), word()     the group's memory
///     wait(call, target)                            waits until the word reaches it. @throws when that cannot happen
///     refuse(call)                                  throws: the word is poisoned
///     wait_for_exit(call, target)                   waits until all have left
///     explain(Disagreement)                         returns the explanation; no rank leaves before this call
///     throw_disagreement(Disagreement, text)        throws
///     at(rank, address)                             returns where this rank finds that rank's address
///     sees(rank, address)                           returns whether all others find it
template <class Seat>
class Round : shardkit::detail::NotCopied {
  public:
    /// Publishes the call and waits until all ranks have entered.
    /// @pre `seat` and `call` outlive the round   @throws what Seat::wait and Seat::refuse do
    Round(const Seat& seat, const shardkit::Call& call, const void* input, std::size_t input_bytes,
          void* output = nullptr)
        : seat_(seat),
          call_(call),
          size_(seat.size()),
          members_(seat.members()),
          own_(seat.members()[seat.rank()]),
          sequence_(own_.sequence),
          carried_(input_bytes <= Seat::Member::carried_bytes) {
        auto& published = own_.published[parity()];
        published.call = {call.signature, input, output, call.where, call.subject};
        if (carried_ && input_bytes > 0) { std::memcpy(published.carried, input, input_bytes); }
        const std::uint32_t complete = next_phase();
        if (!seat.word().enter(complete)) { seat.refuse(call); }
        if (seat.word().progress(complete) != Progress::reached) { seat.wait(call, complete); }
        own_.target = complete;
        ++own_.sequence;
        const Signature& first = this->call(0).signature;
        while (other_ < size_ && this->call(other_).signature == first) { ++other_; }
    }

    std::size_t rank() const noexcept { return seat_.rank(); }
    std::size_t size() const noexcept { return size_; }
    const Call& call(std::size_t rank) const noexcept { return published(rank).call; }
    /// Returns the address of a rank's input. @pre agreed()
    template <class T = std::byte>
    const T* input(std::size_t rank) const noexcept {
        const auto& theirs = published(rank);
        return static_cast<const T*>(carried_ ? theirs.carried : seat_.at(rank, theirs.call.input));
    }
    /// Returns the address of a rank's output. @pre agreed() and not carried()
    std::byte* output(std::size_t rank) const noexcept {
        return static_cast<std::byte*>(seat_.at(rank, call(rank).output));
    }
    /// Returns whether every rank finds every other's output; the same on all of them.
    bool shows_outputs() const noexcept {
        for (std::size_t q = 0; q < size_; ++q) {
            if (!seat_.sees(q, call(q).output)) { return false; }
        }
        return true;
    }
    /// Returns whether a rank's output is where its input was.
    bool in_place(std::size_t rank) const noexcept { return call(rank).output == call(rank).input; }

    /// Returns the number of collectives before this one.
    std::uint64_t sequence() const noexcept { return sequence_; }

    /// Returns whether all ranks made the same call; the same on all of them.
    bool agreed() const noexcept { return other_ == size_; }

    /// Returns whether the inputs are carried with the calls; once agreed, the same on all ranks.
    bool carried() const noexcept { return carried_; }

    /// Returns when all ranks have come this far; what they wrote before is then visible to all.
    void meet() {
        const std::uint32_t complete = next_phase();
        seat_.word().leave(complete);
        seat_.wait_for_exit(call_, complete);
        own_.target = complete;
    }
    /// Leaves the round. After this, peers no longer read this rank's memory, nor this rank theirs.
    void leave() {
        if (!carried_) { meet(); }
    }

    /// The first two ranks whose calls differ, and this rank's call.
    struct Disagreement {
        std::uint64_t sequence;
        std::size_t other;  ///< the rank that differs from rank 0
        Call first;
        Call second;
        Call own;
    };
    /// Leaves, then throws an error that says which ranks disagree and how.
    [[noreturn]] void leave_and_throw() {
        const Disagreement found{sequence_, other_, call(0), call(other_), call(seat_.rank())};
        const auto text = seat_.explain(found);
        meet();
        seat_.throw_disagreement(found, text);
    }

  private:
    std::uint32_t next_phase() const noexcept {
        return Seat::Word::advanced(own_.target, static_cast<std::uint32_t>(size_));
    }
    std::size_t parity() const noexcept { return sequence_ % 2; }
    const auto& published(std::size_t rank) const noexcept { return members_[rank].published[parity()]; }

    const Seat& seat_;
    const shardkit::Call& call_;
    std::size_t size_;
    const typename Seat::Member* members_;
    typename Seat::Member& own_;
    std::uint64_t sequence_;
    bool carried_;
    std::size_t other_ = 1;  // the lowest rank whose call differs from rank 0's
};

}  // namespace shardkit::shared::detail
