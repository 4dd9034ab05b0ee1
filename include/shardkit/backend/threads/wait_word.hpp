// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include <shardkit/backend/shared/wait_word.hpp>

namespace shardkit::threads::detail {

using shared::detail::padding;
using shared::detail::Progress;
using shared::detail::SpinBudget;

/// Lets threads of one process sleep on a word.
struct ThreadSleep {
    std::atomic<std::uint32_t> word{0};

    void sleep(std::uint32_t seen) const noexcept { word.wait(seen, std::memory_order_acquire); }
    void wake_all() noexcept { word.notify_all(); }
};

using WaitWord = shared::detail::WaitWord<ThreadSleep>;

}  // namespace shardkit::threads::detail
