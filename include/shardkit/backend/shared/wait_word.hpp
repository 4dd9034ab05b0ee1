// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <shardkit/backend/host/processor.hpp>

namespace shardkit::shared::detail {

/// The distance between what different ranks write: two cache lines, as processors fetch adjacent lines in pairs.
inline constexpr std::size_t padding = 128;

/// The largest number of polls where every rank has a processor: about 100 microseconds, the cost of the slowest
/// wake-up.
inline constexpr std::uint32_t brief_spins = 8000;

/// What a waiter finds in a WaitWord.
enum class Progress : std::uint8_t { pending, reached, poisoned };

/// How often a rank polls before it sleeps. The number is halved after a wait in which all polls failed, and doubled
/// after one in which a poll succeeded: a rank that spins where processors are shared delays the rank that it waits
/// for. The minimum takes a few times less than falling asleep and waking up. After every sixteen waits in vain the
/// maximum is tried again, as waits that are always a little longer than the budget would otherwise always sleep.
class SpinBudget {
  public:
    static constexpr std::uint32_t retry = 16;

    /// Starts with the maximum `most`; 0 means to sleep at once, always.
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
    std::uint32_t vain_ = 0;  // number of waits in vain since the last successful one
};

/// Counts arrivals (monotonic, 31 bits) and holds a poison bit in one atomic word, so that all ranks agree whether
/// the last rank arrived before or after a failure.
/// Rule:    entries are refused once the word is poisoned, so that an incomplete round stays incomplete and its
///          waiters give up; a complete round goes on to its end. Exits always count: a rank that has entered also
///          leaves, so that no memory is freed while a peer reads it.
/// Counts wrap around; comparisons are right as long as two counts differ by less than 2^30.
/// `Sleep` defines how ranks sleep on the word, and holds the word: sleep(seen) returns when it is no longer `seen`
/// and the sleepers were woken, or earlier; wake_all() is called after a change that others may wait for.
template <class Sleep>
class WaitWord {
  public:
    static constexpr std::uint32_t poison_bit = 0x80000000U;
    static constexpr std::uint32_t count_mask = poison_bit - 1U;

    static constexpr std::uint32_t advanced(std::uint32_t count, std::uint32_t by) noexcept {
        return (count + by) & count_mask;
    }

    WaitWord() noexcept = default;
    explicit WaitWord(std::uint32_t count) noexcept { word().store(count & count_mask, std::memory_order_relaxed); }

    std::uint32_t count() const noexcept { return word().load(std::memory_order_acquire) & count_mask; }
    bool poisoned() const noexcept { return (word().load(std::memory_order_acquire) & poison_bit) != 0; }
    Progress progress(std::uint32_t target) const noexcept {
        return classify(word().load(std::memory_order_acquire), target);
    }

    /// Counts one arrival, and wakes the waiters if it completes `target`. Once the word is poisoned, does nothing
    /// and returns false.
    bool enter(std::uint32_t target) noexcept {
        std::uint32_t old = word().load(std::memory_order_relaxed);
        do {
            if ((old & poison_bit) != 0) { return false; }
        } while (!word().compare_exchange_weak(old, advanced(old, 1), std::memory_order_acq_rel,
                                               std::memory_order_relaxed));
        if (advanced(old, 1) == target) { sleep_.wake_all(); }
        return true;
    }

    /// Counts `by` arrivals, poisoned or not, and wakes the waiters if they complete `target`.
    void leave(std::uint32_t target, std::uint32_t by = 1) noexcept {
        std::uint32_t old = word().load(std::memory_order_relaxed);
        while (!word().compare_exchange_weak(old, (old & poison_bit) | advanced(old, by), std::memory_order_acq_rel,
                                             std::memory_order_relaxed)) {}
        if (advanced(old, by) == target) { sleep_.wake_all(); }
    }

    /// Replaces the count `from` by `to` and wakes the waiters. Returns false if the count is another one or
    /// poisoned.
    bool exchange(std::uint32_t from, std::uint32_t to) noexcept {
        if (!word().compare_exchange_strong(from, to, std::memory_order_acq_rel, std::memory_order_acquire)) {
            return false;
        }
        sleep_.wake_all();
        return true;
    }

    /// Refuses entries from now on, and wakes all waiters.
    void poison() noexcept {
        word().fetch_or(poison_bit, std::memory_order_acq_rel);
        sleep_.wake_all();
    }

    /// Polls once, and then as often as the budget allows.
    Progress poll(std::uint32_t target, SpinBudget& budget) const noexcept {
        Progress seen = progress(target);
        if (seen != Progress::pending) { return seen; }
        for (std::uint32_t looks = budget.looks(); looks > 0; --looks) {
            host::detail::pause();
            seen = progress(target);
            if (seen != Progress::pending) {
                budget.came();
                return seen;
            }
        }
        budget.in_vain();
        return seen;
    }

    /// Poisons the word unless the target is reached, and returns the result. A rank that stops waiting thereby
    /// agrees with those that come later.
    Progress give_up(std::uint32_t target) noexcept {
        std::uint32_t old = word().load(std::memory_order_acquire);
        do {
            if (classify(old, target) == Progress::reached) { return Progress::reached; }
        } while (!word().compare_exchange_weak(old, old | poison_bit, std::memory_order_acq_rel,
                                               std::memory_order_acquire));
        sleep_.wake_all();
        return Progress::poisoned;
    }

    /// Sleeps until the target is reached or the word is poisoned; calls look() after every sleep.
    /// @throws what look() throws
    template <class Look>
    Progress block(std::uint32_t target, Look look) const {
        return sleep_until(target, look, [](Progress seen) { return seen != Progress::pending; });
    }
    Progress block(std::uint32_t target) const noexcept {
        return block(target, [] {});
    }

    /// Returns when the target is reached, poisoned or not: the wait of ranks that have entered.
    /// @throws what look() throws
    template <class Look>
    void wait_for_exit(std::uint32_t target, SpinBudget& budget, Look look) const {
        if (poll(target, budget) == Progress::reached) { return; }
        sleep_until(target, look, [](Progress seen) { return seen == Progress::reached; });
    }
    void wait_for_exit(std::uint32_t target, SpinBudget& budget) const noexcept {
        wait_for_exit(target, budget, [] {});
    }

  private:
    static constexpr Progress classify(std::uint32_t word, std::uint32_t target) noexcept {
        if (((word - target) & count_mask) < (count_mask >> 1U)) { return Progress::reached; }
        return (word & poison_bit) != 0 ? Progress::poisoned : Progress::pending;
    }

    template <class Look, class Over>
    Progress sleep_until(std::uint32_t target, Look& look, Over is_over) const {
        while (true) {
            const std::uint32_t seen = word().load(std::memory_order_acquire);
            const Progress progress = classify(seen, target);
            if (is_over(progress)) { return progress; }
            sleep_.sleep(seen);
            look();
        }
    }

    std::atomic<std::uint32_t>& word() noexcept { return sleep_.word; }
    const std::atomic<std::uint32_t>& word() const noexcept { return sleep_.word; }

    Sleep sleep_;
};

}  // namespace shardkit::shared::detail
