// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>
#include <thread>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <shardkit/backend/shared/wait_word.hpp>

namespace shardkit::mpi::detail {

/// Lets processes sleep on a word in shared memory, for at most `nap`, so that a process whose peer was killed wakes
/// up. std::atomic::wait only works for threads of one process. A sleeper that is killed stays counted: from then on,
/// each wake costs a system call.
struct ProcessSleep {
    static constexpr std::chrono::milliseconds nap{5};

    std::atomic<std::uint32_t> word{0};
    mutable std::atomic<std::uint32_t> sleepers{0};

    void sleep([[maybe_unused]] std::uint32_t seen) const noexcept {
#if defined(__linux__)
        static_assert(sizeof word == sizeof(std::uint32_t) && std::atomic<std::uint32_t>::is_always_lock_free);
        const timespec longest{0, std::chrono::nanoseconds(nap).count()};
        sleepers.fetch_add(1, std::memory_order_seq_cst);
        syscall(SYS_futex, &word, FUTEX_WAIT, seen, &longest, nullptr, 0);
        sleepers.fetch_sub(1, std::memory_order_seq_cst);
#else
        std::this_thread::yield();
#endif
    }
    /// Wakes all sleepers. If a sleeper comes at the same time, either it counts itself before this reads the count,
    /// or it finds the word changed.
    void wake_all() noexcept {
#if defined(__linux__)
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (sleepers.load(std::memory_order_relaxed) != 0) {
            syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
        }
#endif
    }
};

using ProcessWord = shared::detail::WaitWord<ProcessSleep>;

}  // namespace shardkit::mpi::detail
