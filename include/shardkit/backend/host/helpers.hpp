// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include <shardkit/backend/host/deferred_queue.hpp>

namespace shardkit::host::detail {

/// Threads that run the commands of DeferredQueues that are ready, while those who put them off do something else.
/// They sleep where there is none.
class Helpers {
  public:
    /// They wake when it is rung.
    explicit Helpers(Bell& bell) noexcept : bell_(bell) {}
    Helpers(const Helpers&) = delete;
    Helpers& operator=(const Helpers&) = delete;
    /// Returns when each has run what it was at.
    ~Helpers() {
        ending_.store(true, std::memory_order_relaxed);
        bell_.ring();
        for (std::thread& thread : threads_) { thread.join(); }
    }

    /// @pre the queues outlive this, and ring its bell   @throws std::system_error when no thread can be made
    void start(std::size_t count, std::vector<DeferredQueue*> queues) {
        queues_ = std::move(queues);
        for (std::size_t i = 0; i < count; ++i) {
            threads_.emplace_back([this, i] { work(i); });
        }
    }

  private:
    /// Takes the processors that nobody else wants, so that no rank waits for one where it has something to compute.
    static void give_way() noexcept {
#ifdef SCHED_IDLE
        const sched_param none{};
        pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);  // if refused, as any other thread
#endif
    }

    /// Each begins elsewhere, so that they seldom meet at a command.
    void work(std::size_t self) noexcept {
        give_way();
        while (!ending_.load(std::memory_order_relaxed)) {
            const std::uint32_t seen = bell_.rung();
            bool any = false;
            for (std::size_t i = 0; i < queues_.size(); ++i) {
                any = queues_[(self + i) % queues_.size()]->run_ready() || any;
            }
            if (!any && !ending_.load(std::memory_order_relaxed)) { bell_.sleep(seen); }
        }
    }

    Bell& bell_;
    std::atomic<bool> ending_{false};
    std::vector<DeferredQueue*> queues_;
    std::vector<std::thread> threads_;
};

}  // namespace shardkit::host::detail
