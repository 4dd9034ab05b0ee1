// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include <shardkit/detail/not_copied.hpp>

namespace shardkit::mpi::detail {

/// Lets the threads of a process call MPI one at a time, where MPI requires that. First come, first served: a thread
/// that polls for its messages cannot keep out another one.
class CallTurns : shardkit::detail::NotCopied {
  public:
    /// Requires turns from now on. Call it while there is only one thread.
    void require() noexcept { required_ = true; }

    /// Waits for this thread's turn, and ends it with its scope. A thread must not take two at once.
    class Turn : shardkit::detail::NotCopied {
      public:
        explicit Turn(CallTurns& turns) noexcept : turns_(turns.required_ ? &turns : nullptr) {
            if (turns_ == nullptr) { return; }
            const std::uint32_t own = turns_->next_.fetch_add(1, std::memory_order_relaxed);
            std::uint32_t now = turns_->now_.load(std::memory_order_acquire);
            while (now != own) {
                turns_->now_.wait(now, std::memory_order_acquire);
                now = turns_->now_.load(std::memory_order_acquire);
            }
        }
        ~Turn() {
            if (turns_ == nullptr) { return; }
            turns_->now_.fetch_add(1, std::memory_order_release);
            turns_->now_.notify_all();
        }

      private:
        CallTurns* turns_;
    };

  private:
    bool required_ = false;
    std::atomic<std::uint32_t> next_{0};
    std::atomic<std::uint32_t> now_{0};
};

}  // namespace shardkit::mpi::detail
