// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <utility>

#include <shardkit/backend/host/command.hpp>

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

/// Commands that one thread puts off: it runs them itself, in order, where it waits for them or needs their place.
/// A fixed ring: nothing is allocated after construction.
///
/// A command may have begun when it is submitted, as a collective has that peers may already work at: then all
/// before it that it could disturb have run.
/// Errors:  what a command throws is kept until `wait` throws it; until then commands that have not begun are
/// dropped,
///          not run.
class DeferredQueue {
  public:
    static constexpr std::size_t slots = 16;

    DeferredQueue() = default;
    DeferredQueue(const DeferredQueue&) = delete;
    DeferredQueue& operator=(const DeferredQueue&) = delete;

    /// Position of the newest command.
    std::uint64_t submitted() const noexcept { return submitted_; }

    /// A command that begins when it is run, and may use any memory.
    template <class F>
    void submit(const F& command) {
        if (submitted_ - done_ == slots) { await(done_ + 1); }
        Slot& slot = ring_[submitted_++ % slots];
        slot.set(command);
        slot.begun = false;
    }
    /// Runs what has to run before a command begins that uses this memory. A command that begins then is submitted
    /// at once.
    /// @throws what a command threw, as `wait` does
    void make_way(const UsedMemory& used) {
        std::uint64_t until = submitted_ - done_ == slots ? done_ + 1 : done_;
        for (std::uint64_t at = done_; at < submitted_; ++at) {
            const Slot& slot = ring_[at % slots];
            if (!slot.begun || slot.used.conflicts(used)) { until = at + 1; }
        }
        wait(until);
    }
    /// A command that has begun. @pre make_way(used)
    template <class F>
    void submit_begun(const F& command, const UsedMemory& used) noexcept {
        Slot& slot = ring_[submitted_++ % slots];
        slot.set(command);
        slot.begun = true;
        slot.used = used;
    }

    /// Runs the commands up to that position.
    void await(std::uint64_t position) noexcept {
        while (done_ < position) {
            Slot& slot = ring_[done_ % slots];
            if (slot.begun || !failure_) { run(slot); }
            ++done_;
        }
    }
    /// The same, and tells of failures.
    /// @throws what the first command that failed threw, once everything submitted has run or been dropped
    void wait(std::uint64_t position) {
        await(position);
        if (!failure_) { return; }
        await(submitted_);
        std::rethrow_exception(std::exchange(failure_, nullptr));
    }

  private:
    struct Slot : Command {
        bool begun = false;
        UsedMemory used;
    };

    void run(Slot& slot) noexcept {
        try {
            slot();
        } catch (...) {
            if (!failure_) { failure_ = std::current_exception(); }
        }
    }

    std::array<Slot, slots> ring_;
    std::uint64_t submitted_ = 0;
    std::uint64_t done_ = 0;
    std::exception_ptr failure_;
};

}  // namespace shardkit::host::detail
