// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <thread>

namespace shardkit::nccl::detail {

/// Remembers where an object was made, for its end: what ends it. exit() ends the objects of its thread's storage
/// first, and then the static ones, the youngest first: so those that it ends in their own thread, and those that
/// were made when main ran already, can tell.
class Scope {
  public:
    Scope() : thread_over_(mark().over) { static const AtExit at_exit; }

    bool unwinds() const noexcept { return std::uncaught_exceptions() > exceptions_; }
    /// Says whether the process ends, by exit() or by the end of main.
    bool exits() const noexcept { return process_ends() || (is_in_thread() && *thread_over_); }
    /// Says whether the scope ends by neither of these, nor in another thread.
    bool ends() const noexcept { return is_in_thread() && !exits() && !unwinds(); }

  private:
    struct Mark {
        std::shared_ptr<std::atomic<bool>> over = std::make_shared<std::atomic<bool>>(false);
        Mark() = default;
        Mark(const Mark&) = delete;
        Mark& operator=(const Mark&) = delete;
        ~Mark() { *over = true; }
    };
    static Mark& mark() {
        thread_local Mark mark;
        return mark;
    }
    struct AtExit {
        AtExit() { process_ends() = false; }  // made before this one, so that it ends later
        AtExit(const AtExit&) = delete;
        AtExit& operator=(const AtExit&) = delete;
        ~AtExit() { process_ends() = true; }
    };
    static std::atomic<bool>& process_ends() noexcept {
        static std::atomic<bool> ends{false};
        return ends;
    }

    bool is_in_thread() const noexcept { return std::this_thread::get_id() == thread_; }

    std::thread::id thread_ = std::this_thread::get_id();
    std::shared_ptr<std::atomic<bool>> thread_over_;
    int exceptions_ = std::uncaught_exceptions();
};

}  // namespace shardkit::nccl::detail
