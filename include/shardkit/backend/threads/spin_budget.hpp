// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace shardkit::threads {

/// How often a rank looks for what it waits for before it sleeps. Halved when all looks were in vain, doubled when
/// it came while the rank looked: a rank that spins where processors are shared keeps away the one it waits for.
/// The least is a few times shorter than falling asleep and waking up take. After every sixteen waits in vain the
/// most is tried again, because waits that are always a little longer than the budget would else be slept through for
/// ever.
class SpinBudget {
  public:
    static constexpr std::uint32_t retry = 16;

    /// Starts with the most; 0 always sleeps at once.
    constexpr explicit SpinBudget(std::uint32_t most = 0) noexcept : most_(most), looks_(most) {}

    constexpr std::uint32_t looks() const noexcept { return looks_; }
    constexpr void came() noexcept {
        vain_ = 0;
        looks_ = std::min(most_, 2 * looks_);
    }
    constexpr void in_vain() noexcept {
        ++vain_;
        if (vain_ % retry == 0) {
            looks_ = most_;
        } else {
            looks_ = vain_ > retry ? least() : std::max(least(), looks_ / 2);
        }
    }

  private:
    constexpr std::uint32_t least() const noexcept { return most_ / 64; }

    std::uint32_t most_;
    std::uint32_t looks_;
    std::uint32_t vain_ = 0;  // waits in vain since the last that was not
};

}  // namespace shardkit::threads
