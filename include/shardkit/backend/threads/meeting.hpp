// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <shardkit/backend/shared/parts.hpp>
#include <shardkit/backend/shared/round.hpp>
#include <shardkit/backend/threads/wait_word.hpp>

namespace shardkit::threads::detail {

/// Bounds the bytes of an input that travels with the call: its rank need not wait until the peers have read it.
inline constexpr std::size_t carried_bytes = 256;

/// Holds what one rank has where ranks meet.
using Member = shared::detail::Member<carried_bytes>;

/// Lets the calls of some ranks meet, one collective after the other.
class Meeting {
  public:
    explicit Meeting(std::size_t ranks) : members_(std::make_unique<Member[]>(ranks)) {}
    /// One of `stride` in which calls meet in turns, the first in that of index 0; ranks do each other's parts.
    Meeting(std::size_t ranks, std::size_t index, std::size_t stride)
        : members_(std::make_unique<Member[]>(ranks)),
          parts_(std::make_unique<shared::detail::Parts>(ranks)),
          first_(index),
          stride_(stride) {}

    WaitWord& word() noexcept { return word_; }
    Member* members() noexcept { return members_.get(); }
    /// Pieces of the current collective that ranks have taken.
    std::atomic<std::uint32_t>& taken() noexcept { return taken_; }
    /// Where ranks do each other's parts; null where they do not.
    shared::detail::Parts* parts() noexcept { return parts_.get(); }

    /// Returns what say() says of the ranks' disagreement in a collective, asked when the first of them comes. Until
    /// then none has left it, so all that they stated is there.
    template <class Say>
    std::string say_once(std::uint64_t sequence, const Say& say) {
        const std::lock_guard lock(saying_);
        if (!said_ || said_->first != sequence) { said_.emplace(sequence, say()); }
        return said_->second;
    }

    /// Of this meeting's collectives, the number among all of its group and stream.
    std::uint64_t number(std::uint64_t sequence) const noexcept { return first_ + sequence * stride_; }

  private:
    alignas(padding) WaitWord word_;
    alignas(padding) std::atomic<std::uint32_t> taken_{0};
    alignas(padding) std::unique_ptr<Member[]> members_;
    std::unique_ptr<shared::detail::Parts> parts_;
    std::uint64_t first_ = 0;
    std::uint64_t stride_ = 1;
    std::mutex saying_;
    std::optional<std::pair<std::uint64_t, std::string>> said_;  // guarded by saying_: of which collective, and what
};

/// Where calls meet that ranks have put off: each call's ranks in a meeting of their own, so that a rank comes to the
/// next ones before its peers have left this one.
class DeferredMeetings {
  public:
    /// Calls that a rank may have begun and its peers not ended.
    static constexpr std::size_t depth = 4;

    /// What one rank adds to it.
    static constexpr std::size_t rank_bytes() noexcept {
        return sizeof(Calls) + depth * (sizeof(Member) + shared::detail::Parts::rank_bytes());
    }

    explicit DeferredMeetings(std::size_t ranks) : calls_(std::make_unique<Calls[]>(ranks)) {
        for (std::size_t i = 0; i < depth; ++i) { meetings_[i] = std::make_unique<Meeting>(ranks, i, depth); }
    }

    /// A rank's calls at one of the meetings: positions in the queue of its stream.
    struct Positions {
        std::uint64_t shown = 0;      ///< of the call that its peers see, or will
        std::uint64_t submitted = 0;  ///< of the newest that is in the queue
    };
    /// Where this rank's next call meets its peers'.
    struct Turn {
        Meeting& meeting;
        std::size_t index;
        Positions& positions;
        std::uint64_t& begun;  ///< to be counted once the call has begun
    };
    Turn next(std::size_t rank) noexcept {
        Calls& calls = calls_[rank];
        const std::size_t i = calls.begun % depth;
        return {*meetings_[i], i, calls.positions[i], calls.begun};
    }
    /// Where that rank's queue has the call that meets at `turn`. @pre all have entered, and this rank has not left
    std::uint64_t shown(const Turn& turn, std::size_t rank) const noexcept {
        return calls_[rank].positions[turn.index].shown;
    }

    void poison() noexcept {
        for (const auto& meeting : meetings_) { meeting->word().poison(); }
    }

  private:
    struct alignas(padding) Calls {
        std::uint64_t begun = 0;
        std::array<Positions, depth> positions{};
    };

    std::array<std::unique_ptr<Meeting>, depth> meetings_;
    std::unique_ptr<Calls[]> calls_;
};

}  // namespace shardkit::threads::detail
