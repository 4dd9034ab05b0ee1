// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace shardkit::mpi::detail {

/// Lets the threads of a process call MPI one at a time, where MPI wants that of them. First come, first served: one
/// that asks again and again whether its messages are there keeps out no other.
class Turns {
  public:
    Turns() = default;
    Turns(const Turns&) = delete;
    Turns& operator=(const Turns&) = delete;

    /// Requires turns from now on; before there is more than one thread.
    void require() noexcept { required_ = true; }

    /// Waits for this thread's turn, which ends with it. No thread takes two at once.
    class Turn {
      public:
        explicit Turn(Turns& turns) noexcept : turns_(turns.required_ ? &turns : nullptr) {
            if (turns_ == nullptr) { return; }
            const std::uint32_t own = turns_->next_.fetch_add(1, std::memory_order_relaxed);
            std::uint32_t now = turns_->now_.load(std::memory_order_acquire);
            while (now != own) {
                turns_->now_.wait(now, std::memory_order_acquire);
                now = turns_->now_.load(std::memory_order_acquire);
            }
        }
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;
        ~Turn() {
            if (turns_ == nullptr) { return; }
            turns_->now_.fetch_add(1, std::memory_order_release);
            turns_->now_.notify_all();
        }

      private:
        Turns* turns_;
    };

  private:
    bool required_ = false;
    std::atomic<std::uint32_t> next_{0};
    std::atomic<std::uint32_t> now_{0};
};

}  // namespace shardkit::mpi::detail
