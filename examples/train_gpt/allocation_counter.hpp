// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace train_gpt {

/// Bytes and calls of the replaced operator new and delete, of the threads that count for one rank. Memory is
/// taken off the account that it was put on, whichever thread frees it.
struct AllocationAccount {
    std::atomic<std::size_t> current{0};
    std::atomic<std::size_t> peak{0};
    std::atomic<std::uint64_t> allocations{0};
};

/// While it lives, this thread's allocations go on an account of their own, which outlives the thread.
class CountedAllocations {
  public:
    CountedAllocations();
    ~CountedAllocations();
    CountedAllocations(const CountedAllocations&) = delete;
    CountedAllocations& operator=(const CountedAllocations&) = delete;

    std::size_t current_bytes() const noexcept { return account_->current.load(std::memory_order_relaxed); }
    std::size_t peak_bytes() const noexcept { return account_->peak.load(std::memory_order_relaxed); }
    std::uint64_t allocations() const noexcept { return account_->allocations.load(std::memory_order_relaxed); }

  private:
    AllocationAccount* account_;
    AllocationAccount* before_;
};

}  // namespace train_gpt
