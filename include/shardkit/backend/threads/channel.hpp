// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <shardkit/backend/threads/wait_word.hpp>
#include <shardkit/comm/call.hpp>

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

}  // namespace shardkit::threads::detail
