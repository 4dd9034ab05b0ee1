// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>

#include <shardkit/detail/not_copied.hpp>

namespace shardkit::nccl::detail {

/// Finds out, at an object's end, what ends it. exit() first ends the thread-local objects of its thread, then the
/// static ones, the youngest first. So objects that exit() ends in their own thread, and objects that were made after
/// main began, can find out.
class EndedBy {
  public:
    EndedBy() : thread_over_(mark().over) { static const AtExit at_exit; }

    bool unwinds() const noexcept { return std::uncaught_exceptions() > exceptions_; }
    /// Returns whether the process ends, by exit() or at the end of main.
    bool exits() const noexcept { return process_ends() || (is_in_thread() && *thread_over_); }
    /// Returns whether the scope ends normally: not by these or an exception, and in its own thread.
    bool ends() const noexcept { return is_in_thread() && !exits() && !unwinds(); }

  private:
    struct Mark : private shardkit::detail::NotCopied {
        std::shared_ptr<std::atomic<bool>> over = std::make_shared<std::atomic<bool>>(false);
        ~Mark() { *over = true; }
    };
    static Mark& mark() {
        thread_local Mark mark;
        return mark;
    }
    struct AtExit : private shardkit::detail::NotCopied {
        AtExit() { process_ends() = false; }  // made first, so that it ends later
        ~AtExit() { process_ends() = true; }
    };
    static std::atomic<bool>& process_ends() noexcept {
        static std::atomic<bool> ends{false};
        return ends;
    }

    /// Returns the number of this thread, also while its thread-local objects end. The system gives the id of a
    /// thread that has ended to a later one; this number is never given again.
    static std::uint64_t this_thread() noexcept {
        static std::atomic<std::uint64_t> threads{0};
        thread_local const std::uint64_t number = ++threads;
        return number;
    }
    bool is_in_thread() const noexcept { return this_thread() == thread_; }

    std::uint64_t thread_ = this_thread();
    std::shared_ptr<std::atomic<bool>> thread_over_;
    int exceptions_ = std::uncaught_exceptions();
};

}  // namespace shardkit::nccl::detail
