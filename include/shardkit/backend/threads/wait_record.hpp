// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <shardkit/backend/host/command_queue.hpp>
#include <shardkit/backend/threads/wait_word.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::threads::detail {

/// What a rank waits for.
struct Waiting {
    Verb verb{};
    const std::string* axes = nullptr;
    std::uint64_t sequence = 0;
    SourceLocation where{};
};

/// Announces what a rank waits for before it sleeps, so that the launching thread can detect that all ranks wait for
/// each other. Written by one thread, read by another; used only by waits that really block.
class WaitRecord : public host::detail::WaitCount {
  public:
    void begin(const WaitWord& word, std::uint32_t target, const Waiting& waiting) noexcept {
        word_.store(&word, std::memory_order_relaxed);
        target_.store(target, std::memory_order_relaxed);
        verb_.store(waiting.verb, std::memory_order_relaxed);
        axes_.store(waiting.axes, std::memory_order_relaxed);
        sequence_.store(waiting.sequence, std::memory_order_relaxed);
        file_.store(waiting.where.file, std::memory_order_relaxed);
        line_.store(waiting.where.line, std::memory_order_relaxed);
        step();
    }
    /// Returns whether the rank waits for something that has not come.
    bool stuck() const noexcept {
        return is_waiting() &&
               word_.load(std::memory_order_relaxed)->progress(target_.load(std::memory_order_relaxed)) ==
                   Progress::pending;
    }
    /// Returns what it waits for, as text: "all_gather (call 3) over dp at train.cpp:12".
    /// @pre stuck()
    std::string describe() const {
        return shardkit::detail::concat(
            name(verb_.load(std::memory_order_relaxed)), " (call ", sequence_.load(std::memory_order_relaxed),
            ") over ", *axes_.load(std::memory_order_relaxed), " at ", file_.load(std::memory_order_relaxed), ":",
            line_.load(std::memory_order_relaxed));
    }

  private:
    std::atomic<const WaitWord*> word_{nullptr};
    std::atomic<std::uint32_t> target_{0};
    std::atomic<std::uint32_t> line_{0};
    std::atomic<const char*> file_{""};
    std::atomic<const std::string*> axes_{nullptr};
    std::atomic<std::uint64_t> sequence_{0};
    std::atomic<Verb> verb_{};
};

}  // namespace shardkit::threads::detail
