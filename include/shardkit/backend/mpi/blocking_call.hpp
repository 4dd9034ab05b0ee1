// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/bounded_wait.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::mpi::detail {

/// Ends the process if its scope takes longer than a limit. It stands around those calls of MPI that block until
/// other ranks make them too and have no form that does not: a rank cannot leave them with an exception. The launcher
/// then ends the job, or the other ranks see the end of this one.
/// Cost:    a thread
class BlockingCall : shardkit::detail::NotCopied {
  public:
    BlockingCall(std::string_view mpi_call, std::string_view doing, std::chrono::milliseconds limit,
                 SourceLocation where)
        : text_(shardkit::detail::concat("shardkit: mpi: ", doing, " at ", where.file, ":", where.line, ": ",
                                         mpi_call, " is not over after ", limit.count(),
                                         " ms: a rank has not made this call, or its process has ended; this process "
                                         "ends\n")),
          thread_([this, limit] { watch(shardkit::detail::bounded_wait(limit)); }) {}
    ~BlockingCall() {
        {
            const std::lock_guard lock(mutex_);
            over_ = true;
        }
        woken_.notify_one();
        thread_.join();
    }

  private:
    void watch(std::chrono::milliseconds limit) {
        std::unique_lock lock(mutex_);
        // The system clock, because thread sanitizers know the wait on it.
        if (woken_.wait_until(lock, std::chrono::system_clock::now() + limit, [&] { return over_; })) { return; }
        std::fflush(stdout);
        std::fputs(text_.c_str(), stderr);
        std::fflush(stderr);
        // A launcher may drop text that it has not read when the job ends.
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        std::_Exit(EXIT_FAILURE);
    }

    std::string text_;
    std::mutex mutex_;
    std::condition_variable woken_;
    bool over_ = false;
    std::thread thread_;  // last: it uses all the others
};

}  // namespace shardkit::mpi::detail
