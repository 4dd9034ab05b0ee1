// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

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

    WaitWord& word() noexcept { return word_; }
    Member* members() noexcept { return members_.get(); }
    /// Pieces of the current collective that ranks have taken.
    std::atomic<std::uint32_t>& taken() noexcept { return taken_; }

    /// Returns what say() says of the ranks' disagreement in a collective, asked when the first of them comes. Until
    /// then none has left it, so all that they stated is there.
    template <class Say>
    std::string say_once(std::uint64_t sequence, const Say& say) {
        const std::lock_guard lock(saying_);
        if (!said_ || said_->first != sequence) { said_.emplace(sequence, say()); }
        return said_->second;
    }

  private:
    alignas(padding) WaitWord word_;
    alignas(padding) std::atomic<std::uint32_t> taken_{0};
    alignas(padding) std::unique_ptr<Member[]> members_;
    std::mutex saying_;
    std::optional<std::pair<std::uint64_t, std::string>> said_;  // guarded by saying_: of which collective, and what
};

}  // namespace shardkit::threads::detail
