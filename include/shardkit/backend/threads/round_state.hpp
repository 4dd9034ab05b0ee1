// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <shardkit/backend/shared/round.hpp>
#include <shardkit/backend/threads/wait_word.hpp>
#include <shardkit/detail/owned.hpp>

namespace shardkit::threads::detail {

/// The largest input that is carried with the call: its rank need not wait until the peers have read it. The sum of a
/// global norm (560 bytes) is carried.
inline constexpr std::size_t carried_bytes = 576;

/// A rank's state where ranks meet.
using Member = shared::detail::Member<carried_bytes>;

/// The meeting place for the calls of some ranks, one collective after the other.
class RoundState {
  public:
    explicit RoundState(std::size_t ranks) : members_(new Member[ranks]()) {}

    WaitWord& word() noexcept { return word_; }
    Member* members() noexcept { return members_.get(); }

    /// Returns say(), the explanation of the ranks' disagreement in a collective, evaluated for the first rank that
    /// asks. No rank has left the collective before, so all statements are still available.
    template <class Say>
    std::string say_once(std::uint64_t sequence, const Say& say) {
        const std::lock_guard lock(saying_);
        if (!said_ || said_->first != sequence) { said_.emplace(sequence, say()); }
        return said_->second;
    }

  private:
    alignas(padding) WaitWord word_;
    alignas(padding) shardkit::detail::Owned<Member[]> members_;
    std::mutex saying_;
    std::optional<std::pair<std::uint64_t, std::string>> said_;  // guarded by saying_: collective and explanation
};

}  // namespace shardkit::threads::detail
