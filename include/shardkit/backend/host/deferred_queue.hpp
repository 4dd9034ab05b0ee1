// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <utility>

#include <shardkit/backend/host/command.hpp>
#include <shardkit/backend/host/processor.hpp>

namespace shardkit::host::detail {

/// Memory that a command reads and writes until it has run.
struct UsedMemory {
    const void* read = nullptr;
    std::size_t read_bytes = 0;
    void* written = nullptr;
    std::size_t written_bytes = 0;

    /// Whether one of the two must run before the other begins.
    bool conflicts(const UsedMemory& other) const noexcept {
        return meet(written, written_bytes, other.written, other.written_bytes) ||
               meet(written, written_bytes, other.read, other.read_bytes) ||
               meet(read, read_bytes, other.written, other.written_bytes);
    }

  private:
    static bool meet(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) noexcept {
        const std::less<> before;
        return before(a, static_cast<const std::byte*>(b) + b_bytes) &&
               before(b, static_cast<const std::byte*>(a) + a_bytes);
    }
};

/// Where threads that have nothing to run sleep until somebody rings.
class Bell {
  public:
    void ring() noexcept {
        rung_.fetch_add(1, std::memory_order_acq_rel);
        rung_.notify_all();
    }
    /// How often it was rung: what was made ready before is seen after it.
    std::uint32_t rung() const noexcept { return rung_.load(std::memory_order_acquire); }
    /// Returns once it has been rung since `seen`.
    void sleep(std::uint32_t seen) const noexcept { rung_.wait(seen, std::memory_order_acquire); }

  private:
    std::atomic<std::uint32_t> rung_{0};
};

/// Where a thread that waits for a command takes part in it while another runs it.
class Door {
  public:
    void open() noexcept { state_.store(State::open, std::memory_order_release); }
    /// Returns when nobody is inside, and nobody comes in any more.
    void close() noexcept {
        State seen = State::open;
        while (!state_.compare_exchange_strong(seen, State::closed, std::memory_order_acq_rel) &&
               seen != State::closed) {
            state_.wait(seen, std::memory_order_acquire);
            seen = State::open;
        }
    }
    /// False where it is closed.
    bool go_in() noexcept {
        State seen = State::open;
        return state_.compare_exchange_strong(seen, State::occupied, std::memory_order_acq_rel);
    }
    void go_out() noexcept {
        open();
        state_.notify_one();
    }

  private:
    enum class State : std::uint8_t { closed, open, occupied };
    std::atomic<State> state_{State::closed};
};

/// How a command that has begun is run.
struct Run {
    bool assists;  ///< takes part in the work, which another thread runs and ends
    Door& door;    ///< to be closed between the work and its end, by the one who ends it
};

/// Commands that one thread puts off: it runs them itself, in order, where it waits for them or needs their place.
/// Those that have begun and are ready may also be run by helpers, while it does something else; where it waits for
/// one that a helper is at, it assists.
/// A fixed ring: nothing is allocated after construction.
///
/// A command may have begun when it is submitted, as a collective has that peers may already work at: then all
/// before it that it could disturb have run.
/// Threads: one submits and waits; any thread calls `may_run` and `run_ready`.
/// Errors:  what a command throws is kept until `wait` throws it; until then commands that have not begun are
/// dropped, not run.
class DeferredQueue {
  public:
    static constexpr std::size_t slots = 16;

    /// `helpers`: whom to tell of commands that are ready; null where nobody helps. `spins`: looks of a thread that
    /// waits for a helper before it sleeps.
    explicit DeferredQueue(Bell* helpers = nullptr, std::uint32_t spins = 0) : helpers_(helpers), spins_(spins) {}
    DeferredQueue(const DeferredQueue&) = delete;
    DeferredQueue& operator=(const DeferredQueue&) = delete;

    /// Position of the newest command.
    std::uint64_t submitted() const noexcept { return submitted_.load(std::memory_order_relaxed); }

    /// A command that begins when it is run, and may use any memory.
    template <class F>
    void submit(const F& command) {
        const std::uint64_t at = submitted();
        if (at - done() == slots) { await(done() + 1); }
        push(at, [command](const Run&) { command(); }, false, {});
    }
    /// Runs what has to run before a command begins that uses this memory. A command that begins then is submitted
    /// at once.
    /// @throws what a command threw, as `wait` does
    void make_way(const UsedMemory& used) {
        const std::uint64_t first = done();
        std::uint64_t until = submitted() - first == slots ? first + 1 : first;
        for (std::uint64_t at = first; at < submitted(); ++at) {
            const Slot& slot = ring_[at % slots];
            if (!slot.begun || slot.used.conflicts(used)) { until = at + 1; }
        }
        wait(until);
    }
    /// A command that has begun, or begins next: command(run), const Run&. @pre make_way(used)
    template <class F>
    void submit_begun(const F& command, const UsedMemory& used) noexcept {
        push(submitted(), command, true, used);
    }

    /// Takes the newest command back. @pre it has not begun after all, and nobody has said that it may run
    void take_back() noexcept { submitted_.store(submitted() - 1, std::memory_order_relaxed); }

    /// Runs the commands up to that position, or assists the helper that does.
    void await(std::uint64_t position) noexcept {
        for (std::uint64_t at = done(); at < position; at = done()) {
            if (!claim(at)) {
                assist(at);
                continue;
            }
            run(at);
            if (helpers_ != nullptr && is_ready(at + 1)) { helpers_->ring(); }
        }
    }
    /// The same, and tells of failures.
    /// @throws what the first command that failed threw, once everything submitted has been run or been dropped
    void wait(std::uint64_t position) {
        await(position);
        if (!failed_.load(std::memory_order_acquire)) { return; }
        await(submitted());
        const std::exception_ptr failure = std::exchange(failure_, nullptr);
        failed_.store(false, std::memory_order_relaxed);
        std::rethrow_exception(failure);
    }

    /// The command at that position has begun, and waits for nothing any more.
    void may_run(std::uint64_t position) noexcept {
        std::atomic<std::uint64_t>& ready = ready_[(position - 1) % slots];
        for (std::uint64_t seen = ready.load(std::memory_order_relaxed);
             seen < position &&
             !ready.compare_exchange_weak(seen, position, std::memory_order_release, std::memory_order_relaxed);) {}
    }
    /// Runs, for the thread whose commands these are, the next ones as long as they may run.
    /// Returns whether there was one.
    bool run_ready() noexcept {
        bool any = false;
        for (std::uint64_t at = done(); is_ready(at) && claim(at); at = done()) {
            door_.open();
            run(at);
            done_.notify_all();
            any = true;
        }
        return any;
    }

  private:
    struct Slot : Command<const Run&> {
        bool begun = false;
        UsedMemory used;
    };

    std::uint64_t done() const noexcept { return done_.load(std::memory_order_acquire); }

    template <class F>
    void push(std::uint64_t at, const F& command, bool begun, const UsedMemory& used) noexcept {
        Slot& slot = ring_[at % slots];
        slot.set(command);
        slot.begun = begun;
        slot.used = used;
        submitted_.store(at + 1, std::memory_order_release);
    }

    /// Whether helpers may run what is next. If it is run or replaced meanwhile, it cannot be claimed.
    bool is_ready(std::uint64_t at) const noexcept {
        return ready_[at % slots].load(std::memory_order_acquire) == at + 1;
    }
    /// Of those that would run a command one does.
    bool claim(std::uint64_t at) noexcept {
        return claimed_.compare_exchange_strong(at, at + 1, std::memory_order_acq_rel, std::memory_order_relaxed);
    }
    void run(std::uint64_t at) noexcept {
        Slot& slot = ring_[at % slots];
        if (slot.begun || !failed_.load(std::memory_order_acquire)) {
            try {
                slot({.assists = false, .door = door_});
            } catch (...) {
                if (!failed_.load(std::memory_order_relaxed)) {
                    failure_ = std::current_exception();
                    failed_.store(true, std::memory_order_release);
                }
            }
        }
        door_.close();
        done_.store(at + 1, std::memory_order_release);
    }
    /// Returns when the helper has run it. @pre a helper has claimed it
    void assist(std::uint64_t at) noexcept {
        if (door_.go_in()) {
            ring_[done() % slots]({.assists = true, .door = door_});  // the helper may be further by now
            door_.go_out();
        }
        for (std::uint32_t left = spins_; left > 0 && done() == at; --left) { pause(); }
        done_.wait(at, std::memory_order_acquire);
    }

    std::array<Slot, slots> ring_;
    std::array<std::atomic<std::uint64_t>, slots> ready_{};  // the newest position of each slot that may be run
    Bell* helpers_;
    std::uint32_t spins_;
    std::atomic<std::uint64_t> submitted_{0};
    std::atomic<std::uint64_t> claimed_{0};
    std::atomic<std::uint64_t> done_{0};
    Door door_;  // of what a helper is at
    std::atomic<bool> failed_{false};
    std::exception_ptr failure_;  // of who runs a command, and taken when all have run
};

}  // namespace shardkit::host::detail
