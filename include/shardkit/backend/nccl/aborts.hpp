// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/detail/ticks.hpp>

namespace shardkit::nccl::detail {

/// Aborts communicators in threads of their own. ncclCommAbort returns only when the communicator's kernels have
/// ended, which may be queued behind a hung kernel of another communicator, and when no CUDA graph holds any of them,
/// whatever its abort flag says. A rank that reports a failure must not wait for either.
/// Source:  commReclaim and commDestroySync in NCCL's init.cc, 2.18 to 2.30
class Aborts {
  public:
    explicit Aborts(int device) : device_(device), pending_(std::make_shared<Pending>()) {}

    /// Keeps memory alive that NCCL may write, until later aborts have ended.
    void keep(std::shared_ptr<void> written) { kept_.push_back(std::move(written)); }
    /// Starts the aborts and returns at once. A communicator for which no thread can be started is left behind.
    void begin(std::vector<ncclComm_t> comms) noexcept {
        if (comms.empty()) { return; }
        int version = 0;
        // From 2.22 on, a group tells all communicators to stop before it waits for one; before, each call waits.
        const bool together = ncclGetVersion(&version) == ncclSuccess && version >= grouped_aborts_version;
        try {
            if (together) {
                begin_thread(std::move(comms));
            } else {
                for (ncclComm_t comm : comms) { begin_thread({comm}); }
            }
        } catch (...) {}  // NOLINT(bugprone-empty-catch): no memory or no thread
    }
    /// Returns whether all aborts have ended, after waiting at most `within`.
    bool over(std::chrono::milliseconds within) const noexcept {
        std::unique_lock lock(pending_->mutex);
        // The system clock, because thread sanitizers know the wait on it.
        return pending_->ended.wait_until(lock,
                                          std::chrono::system_clock::now() + shardkit::detail::bounded_wait(within),
                                          [&] { return pending_->threads == 0; });
    }

  private:
    /// The first NCCL in which the aborts of a group wait at its end.
    static constexpr int grouped_aborts_version = 22200;

    struct Pending {
        std::mutex mutex;
        std::condition_variable ended;
        std::size_t threads = 0;
    };

    void begin_thread(std::vector<ncclComm_t> comms) {
        {
            const std::lock_guard lock(pending_->mutex);
            ++pending_->threads;
        }
        try {
            std::thread([comms = std::move(comms), device = device_, pending = pending_, kept = kept_] {
                static_cast<void>(cudaSetDevice(device));
                static_cast<void>(ncclGroupStart());
                for (ncclComm_t comm : comms) { static_cast<void>(ncclCommAbort(comm)); }
                static_cast<void>(ncclGroupEnd());
                const std::lock_guard lock(pending->mutex);
                --pending->threads;
                pending->ended.notify_all();
            }).detach();
        } catch (...) {
            const std::lock_guard lock(pending_->mutex);
            --pending_->threads;
            throw;
        }
    }

    int device_;
    std::vector<std::shared_ptr<void>> kept_;
    std::shared_ptr<Pending> pending_;  // outlives this object if an abort never ends
};

}  // namespace shardkit::nccl::detail
