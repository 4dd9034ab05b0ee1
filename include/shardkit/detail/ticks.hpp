// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace shardkit::detail {

/// Returns `given`, but at most a hundred years: then no sum with a clock's time and no number of nanoseconds
/// overflows, as those of milliseconds::max() do.
constexpr std::chrono::milliseconds bounded_wait(std::chrono::milliseconds given) noexcept {
    return std::min(given, std::chrono::milliseconds(std::chrono::hours(24 * 365 * 100)));
}

/// Returns the time in ticks of the processor's counter, which costs a third of a call of a clock. Ticks are made
/// nanoseconds by a TickClock.
[[gnu::always_inline]] inline std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
    std::uint64_t low;
    std::uint64_t high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return high << 32U | low;
#elif defined(__aarch64__)
    std::uint64_t count;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(count));
    return count;
#else
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

/// Makes ticks nanoseconds since 1970, by the time that has passed since it was made.
class TickClock {
  public:
    /// Returns the time of `at`, not exact to the last microseconds.
    std::uint64_t nanoseconds(std::uint64_t at) const noexcept {
        const double passed = static_cast<double>(ticks() - begin_);
        const double rate = passed > 0 ? static_cast<double>(since_1970() - wall_) / passed : 1;
        return wall_ + static_cast<std::uint64_t>(static_cast<double>(at - begin_) * rate);
    }
    /// Returns the ticks that many nanoseconds ago.
    std::uint64_t ticks_before(std::uint64_t nanoseconds) const noexcept {
        const std::uint64_t now = ticks();
        const double wall = static_cast<double>(since_1970() - wall_);
        const double ago = wall > 0 ? static_cast<double>(nanoseconds) * static_cast<double>(now - begin_) / wall : 0;
        return static_cast<double>(now - begin_) > ago ? now - static_cast<std::uint64_t>(ago) : begin_;
    }
    static std::uint64_t since_1970() noexcept {
        return static_cast<std::uint64_t>(
            std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
                .count());
    }

  private:
    std::uint64_t begin_ = ticks();
    std::uint64_t wall_ = since_1970();
};

}  // namespace shardkit::detail
