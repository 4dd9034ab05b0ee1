// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace shardkit::threads {

/// How often a rank looks for what it waits for before it sleeps. Halved when all looks were in vain, doubled when
/// it came while the rank looked: a rank that spins where processors are shared keeps away the one it waits for.
/// The least is about as long as falling asleep and waking up take, so that a wait costs at most twice the better
/// way.
class SpinBudget {
  public:
    /// Starts with the most; 0 always sleeps at once.
    constexpr explicit SpinBudget(std::uint32_t most = 0) noexcept : most_(most), looks_(most) {}

    constexpr std::uint32_t looks() const noexcept { return looks_; }
    constexpr void came() noexcept { looks_ = std::min(most_, 2 * looks_); }
    constexpr void in_vain() noexcept { looks_ = std::max(most_ / 16, looks_ / 2); }

  private:
    std::uint32_t most_;
    std::uint32_t looks_;
};

}  // namespace shardkit::threads
