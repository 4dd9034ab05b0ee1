// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include <shardkit/backend/host/processor.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/list.hpp>

namespace shardkit::host::detail {

/// Counts the waits of one thread, for another thread that checks whether they end. What a wait is for is stored
/// before its begin.
class WaitCount {
  public:
    /// Returns a number that is odd while the thread waits and grows with every wait.
    std::uint64_t generation() const noexcept { return generation_.load(std::memory_order_acquire); }
    void end() noexcept { step(); }

  protected:
    bool is_waiting() const noexcept { return generation() % 2 == 1; }
    void step() noexcept {
        generation_.store(generation_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }

  private:
    std::atomic<std::uint64_t> generation_{0};
};

/// Announces that a thread sleeps until a counter of commands reaches a target, for the detection of waits that never
/// end. Written by one thread, read by another.
class QueueWait : public WaitCount {
  public:
    void begin(const std::atomic<std::uint64_t>& count, std::uint64_t target) noexcept {
        count_.store(&count, std::memory_order_relaxed);
        target_.store(target, std::memory_order_relaxed);
        step();
    }
    /// Returns whether the thread sleeps until a command that has not run yet.
    bool stuck() const noexcept {
        return is_waiting() && count_.load(std::memory_order_relaxed)->load(std::memory_order_acquire) <
                                   target_.load(std::memory_order_relaxed);
    }

  private:
    std::atomic<const std::atomic<std::uint64_t>*> count_{nullptr};
    std::atomic<std::uint64_t> target_{0};
};

/// A function to call later, stored in place. Nothing is allocated, and a command may be dropped without a call.
class Command {
  public:
    using Function = engine::WorkQueue::Function;

    /// Stores a copy of the function.
    void set(const Function& function) noexcept {
        std::memcpy(function_.data(), function.object, function.size);
        call_ = function.call;
    }
    /// @throws what the function throws
    void operator()() { call_(function_.data()); }

  private:
    void (*call_)(void*) = nullptr;
    alignas(std::max_align_t) std::array<std::byte, Function::most_bytes> function_;
};

/// A thread that runs commands in the order in which one other thread submits them. It uses a fixed ring: nothing is
/// allocated after construction, and `submit` waits while the ring is full.
/// Errors:  an exception of a command is kept; later commands are dropped until `wait` has thrown it.
class CommandQueue final : public engine::WorkQueue {
  public:
    static constexpr std::size_t slots = 256;

    /// Returns the memory of a queue in bytes, without its thread's.
    static constexpr std::size_t ring_bytes() noexcept { return slots * sizeof(Command); }

    /// Starts the thread. `spins` is the number of polls of an idle thread before it sleeps; use 0 if there are more
    /// threads than processors.
    /// @throws std::system_error when no thread can be made
    explicit CommandQueue(std::uint32_t spins = 0)
        : ring_(slots), spins_(spins), worker_(&start, static_cast<void*>(this)) {}
    /// Runs the submitted commands, then ends the thread. An error that nobody waited for is dropped.
    ~CommandQueue() {
        last_.store(submitted(), std::memory_order_relaxed);
        submit([] {});
        worker_.join();
    }

    /// Returns the position of the newest command; `wait` for it returns when all submitted commands have run.
    std::uint64_t submitted() const noexcept { return submitted_.load(std::memory_order_relaxed); }

    /// Submits a command and returns its position.
    std::uint64_t submit(const Function& command) override {
        const std::uint64_t position = submitted();
        if (position >= slots) { await(position - slots + 1); }
        ring_[position % slots].set(command);
        submitted_.store(position + 1, std::memory_order_release);
        submitted_.notify_one();
        return position + 1;
    }

    Event record() noexcept override { return {*this, submitted()}; }
    void wait(const Event& event) noexcept override {
        if (event.queue()->on_device()) { return event.queue()->settle(event); }
        submit([event, this] { await(static_cast<CommandQueue&>(*event.queue()), event.point()); });
    }
    void synchronize(SourceLocation /*where*/) override { wait(submitted()); }
    void synchronize(const Event& event, SourceLocation /*where*/) override {
        if (event.queue() == this) { wait(event.point()); }
    }
    void settle() noexcept override { await(submitted()); }
    void settle(const Event& event) noexcept override { await(event.point()); }

    /// Waits, in the submitting thread, until the command at `position` has run or was dropped.
    void await(std::uint64_t position) noexcept { wait_until(done_, position, &submitter_); }
    /// Waits, in this queue's commands, until another queue's command has run or was dropped.
    void await(const CommandQueue& other, std::uint64_t position) noexcept {
        wait_until(other.done_, position, &worker_waits_);
    }

    /// Waits like `await`, and reports failures.
    /// @throws what the first failed command threw, after all submitted commands were dropped
    void wait(std::uint64_t position) {
        await(position);
        if (!failed_.load(std::memory_order_acquire)) { return; }
        await(submitted());
        const std::exception_ptr failure = std::exchange(failure_, nullptr);
        failed_.store(false, std::memory_order_release);
        std::rethrow_exception(failure);
    }

    /// Returns whether the submitting thread sleeps until this queue has run a command that has not run yet.
    bool submitter_is_stuck() const noexcept { return submitter_.stuck(); }
    /// Returns whether this queue's thread has nothing to run, or sleeps until another queue has run a command.
    bool rests() const noexcept {
        const std::uint64_t submitted = submitted_.load(std::memory_order_acquire);
        return done_.load(std::memory_order_acquire) >= submitted || worker_waits_.stuck();
    }
    /// Returns a number that grows with every command that has run and with every such sleep.
    std::uint64_t progress() const noexcept {
        return done_.load(std::memory_order_acquire) + submitter_.generation() + worker_waits_.generation();
    }

  private:
    /// Waits until a counter reaches the target. `sleeper` announces the wait; null: this queue's thread waits for
    /// commands.
    void wait_until(const std::atomic<std::uint64_t>& count, std::uint64_t target, QueueWait* sleeper) noexcept {
        std::uint64_t seen = count.load(std::memory_order_acquire);
        for (std::uint32_t left = spins_; seen < target && left > 0; --left) {
            pause();
            seen = count.load(std::memory_order_acquire);
        }
        if (seen >= target) { return; }
        if (sleeper != nullptr) { sleeper->begin(count, target); }
        while (seen < target) {
            count.wait(seen, std::memory_order_acquire);
            seen = count.load(std::memory_order_acquire);
        }
        if (sleeper != nullptr) { sleeper->end(); }
    }

    void work() noexcept {
        for (std::uint64_t next = 0;; ++next) {
            wait_until(submitted_, next + 1, nullptr);
            if (next == last_.load(std::memory_order_relaxed)) { return; }
            if (!failed_.load(std::memory_order_relaxed)) {
                try {
                    ring_[next % slots]();
                } catch (...) {
                    failure_ = std::current_exception();
                    failed_.store(true, std::memory_order_release);
                }
            }
            done_.store(next + 1, std::memory_order_release);
            done_.notify_all();
        }
    }

    static void start(void* queue) { static_cast<CommandQueue*>(queue)->work(); }

    shardkit::detail::List<Command> ring_;
    std::uint32_t spins_;
    std::atomic<std::uint64_t> submitted_{0};
    std::atomic<std::uint64_t> done_{0};
    std::atomic<std::uint64_t> last_{~std::uint64_t{0}};  // the position behind which the thread ends
    std::atomic<bool> failed_{false};
    std::exception_ptr failure_;  // written by the worker before failed_, taken by the submitter while it is idle
    QueueWait submitter_;
    QueueWait worker_waits_;
    std::thread worker_;
};

}  // namespace shardkit::host::detail
