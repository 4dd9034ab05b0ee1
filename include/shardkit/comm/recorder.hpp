// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/owned.hpp>
#include <shardkit/detail/ticks.hpp>

namespace shardkit::engine {

class Journal;

/// The name of a rank's communicators over one set of axes and one list of ranks, and the journal that records their
/// calls and keeps this label at a stable address.
struct CommunicatorLabel {
    Journal& journal;
    std::size_t first_row;  ///< index in the journal's traffic log
    std::string axes;
    /// The ranks of the world in the communicator, in its order; empty where the engine does not know them.
    std::shared_ptr<const std::vector<std::size_t>> members;
    mutable std::uint64_t collectives = 0;  ///< calls so far, without messages; used by the rank's thread
};

}  // namespace shardkit::engine

namespace shardkit::recorder {

/// One of a rank's last calls. Times are nanoseconds since 1970; 0: not yet.
struct RecentCall {
    std::uint64_t number = 0;  ///< counts this rank's calls over all its communicators, from 0
    std::string axes;
    Signature signature{};
    SourceLocation where{};
    std::string subject;         ///< CallSubject::text
    std::uint64_t sequence = 0;  ///< counts the collectives of these ranks under this name, from 0
    std::size_t payload = 0;     ///< bytes of the whole buffer
    std::uint64_t given = 0;     ///< when the program made the call
    std::uint64_t begun = 0;     ///< when the engine began to run it
    std::uint64_t done = 0;      ///< when the engine knew that it was over
    bool failed = false;         ///< whether it ended with an exception; `done` stays 0
    std::shared_ptr<const std::vector<std::size_t>> members;  ///< as CommunicatorLabel::members
    std::uint32_t step = 0;  ///< of the program, as Rank::set_step said before the call
};

}  // namespace shardkit::recorder

namespace shardkit::detail {

/// The flight recorder of one rank: its last calls over groups of more than one rank. Nothing else in the library
/// keeps calls. The rank's thread begins them; a thread that runs them for it may end them; any thread may read them.
/// Cost:    less than 30 ns for a call, and no allocation after it was made
class Recorder {
  public:
    /// The number of calls that it keeps.
    static constexpr std::uint64_t kept = 1024;

    Recorder() : slots_(new Slot[kept]()) {}

    /// Returns the memory that one takes.
    static constexpr std::size_t bytes() noexcept { return kept * sizeof(Slot); }

    /// Records a call before the engine has it, and numbers it.
    void begin(const engine::CommunicatorLabel& label, std::uint64_t sequence, const Call& call) noexcept {
        const std::uint64_t number = count_.load(std::memory_order_relaxed);
        call.number = number;
        Slot& slot = slots_[number % kept];
        // A reader that sees any word of this call sees that the slot is no longer what it was.
        slot.number.store(none, std::memory_order_relaxed);
        const std::uint64_t now = ticks();
        slot.label.store(&label, std::memory_order_release);
        slot.sequence.store(sequence, std::memory_order_release);
        const Signature& s = call.signature;
        // Put together here: a load of what was stored in smaller parts would wait for them.
        slot.kind.store(static_cast<std::uint64_t>(s.verb) | static_cast<std::uint64_t>(s.in) << 8U |
                            static_cast<std::uint64_t>(s.out) << 16U | static_cast<std::uint64_t>(s.op) << 24U |
                            std::uint64_t{s.subject} << 32U,
                        std::memory_order_release);
        slot.elements.store(s.count, std::memory_order_release);
        slot.argument.store(s.argument, std::memory_order_release);
        slot.payload.store(call.payload, std::memory_order_release);
        slot.file.store(call.where.file, std::memory_order_release);
        slot.line.store(call.where.line | std::uint64_t{step_} << 32U, std::memory_order_release);
        slot.subject.store(call.subject, std::memory_order_release);
        slot.given.store(now, std::memory_order_release);
        slot.begun.store(now, std::memory_order_release);
        slot.done.store(0, std::memory_order_release);
        slot.number.store(number, std::memory_order_release);
        count_.store(number + 1, std::memory_order_release);
    }
    /// Says that calls from now on belong to that step of the program.
    void set_step(std::uint32_t step) noexcept { step_ = step; }
    /// Says that a device runs the call that the engine has been given: `end` leaves it open.
    void leave_open(const Call& call) noexcept {
        if (call.number != none) { queued_ = call.number + 1; }
    }
    /// Says likewise that another thread will run it, which begins later.
    void queue(const Call& call) noexcept {
        leave_open(call);
        for_each_of(call, [](Slot& slot) { slot.begun.store(0, std::memory_order_relaxed); });
    }
    /// Records the end of a call that the engine has run before it returned.
    void end(const Call& call) noexcept {
        Slot* const slot = call.number >= queued_ ? slot_of(call.number) : nullptr;
        if (slot != nullptr) { slot->done.store(ticks(), std::memory_order_relaxed); }
    }
    /// Records that a call has failed if it is neither over nor queued.
    void close(const Call& call) noexcept {
        Slot* const slot = call.number >= queued_ ? slot_of(call.number) : nullptr;
        if (slot != nullptr && slot->done.load(std::memory_order_relaxed) == 0) {
            slot->done.store(failed, std::memory_order_relaxed);
        }
    }
    /// Records that a queued call begins, or is over.
    void begun(const Call& call) noexcept {
        for_each_of(call, [now = ticks()](Slot& slot) { slot.begun.store(now, std::memory_order_relaxed); });
    }
    void done(const Call& call) noexcept {
        for_each_of(call, [now = ticks()](Slot& slot) { finish(slot, now); });
    }
    /// Records that the entry with that number is over.
    void done(std::uint64_t number) noexcept {
        if (Slot* const slot = slot_of(number)) { finish(*slot, ticks()); }
    }

    /// Returns the number of calls so far.
    std::uint64_t count() const noexcept { return count_.load(std::memory_order_acquire); }
    /// Returns the number of the oldest call that it may still have.
    std::uint64_t oldest() const noexcept {
        const std::uint64_t calls = count();
        return calls - (calls < kept ? calls : kept);
    }
    /// Returns a call by its number; nothing if it is no longer kept.
    [[gnu::cold]] std::optional<recorder::RecentCall> read(std::uint64_t number) const {
        const Slot& slot = slots_[number % kept];
        if (number == none || slot.number.load(std::memory_order_acquire) != number) { return {}; }
        const auto* const label = slot.label.load(std::memory_order_acquire);
        const std::uint64_t kind = slot.kind.load(std::memory_order_acquire);
        const std::uint64_t line = slot.line.load(std::memory_order_acquire);
        const engine::CallSubject* const subject = slot.subject.load(std::memory_order_acquire);
        const std::uint64_t done = slot.done.load(std::memory_order_acquire);
        recorder::RecentCall call{
            .number = number,
            .axes = {},
            .signature = {static_cast<Verb>(kind & 0xFFU), static_cast<ElementType>(kind >> 8U & 0xFFU),
                          static_cast<ElementType>(kind >> 16U & 0xFFU), static_cast<ReduceOp>(kind >> 24U & 0xFFU),
                          static_cast<std::uint32_t>(kind >> 32U), slot.elements.load(std::memory_order_acquire),
                          slot.argument.load(std::memory_order_acquire)},
            .where = {slot.file.load(std::memory_order_acquire), static_cast<std::uint32_t>(line)},
            .subject = {},
            .sequence = slot.sequence.load(std::memory_order_acquire),
            .payload = slot.payload.load(std::memory_order_acquire),
            .given = time(slot.given.load(std::memory_order_acquire)),
            .begun = time(slot.begun.load(std::memory_order_acquire)),
            .done = time(done),
            .failed = done == failed,
            .members = {},
            .step = static_cast<std::uint32_t>(line >> 32U)};
        if (slot.number.load(std::memory_order_relaxed) != number) { return {}; }
        call.axes = label->axes;
        call.subject = text_of(subject);
        call.members = label->members;
        return call;
    }
    /// Returns the last calls, the oldest first.
    [[gnu::cold]] std::vector<recorder::RecentCall> recent_calls() const {
        std::vector<recorder::RecentCall> calls;
        const std::uint64_t end = count();
        for (std::uint64_t number = oldest(); number < end; ++number) {
            if (auto call = read(number)) { calls.push_back(std::move(*call)); }  // else the rank goes on meanwhile
        }
        return calls;
    }

    /// Returns whether a call is not over that was given at least so many nanoseconds ago.
    bool waits_longer_than(std::uint64_t nanoseconds) const noexcept {
        const std::uint64_t when = clock_.ticks_before(nanoseconds);
        for (std::uint64_t number = count(); number-- > oldest();) {
            const Slot& slot = slots_[number % kept];
            if (slot.number.load(std::memory_order_acquire) == number &&
                slot.done.load(std::memory_order_relaxed) == 0 &&
                slot.given.load(std::memory_order_relaxed) <= when) {
                return true;
            }
        }
        return false;
    }

  private:
    static constexpr std::uint64_t none = Call::no_number;
    static constexpr std::uint64_t failed = 1;  // the time `done` of a call that ended with an exception

    struct Slot {
        std::atomic<std::uint64_t> number{none};
        std::atomic<const engine::CommunicatorLabel*> label{nullptr};
        std::atomic<std::uint64_t> sequence{0};
        std::atomic<std::uint64_t> given{0};
        std::atomic<std::uint64_t> begun{0};
        std::atomic<std::uint64_t> done{0};
        std::atomic<std::uint64_t> kind{0};  // verb, types, operation, hash of the subject
        std::atomic<std::size_t> elements{0};
        std::atomic<std::uint64_t> argument{0};
        std::atomic<std::size_t> payload{0};
        std::atomic<const char*> file{""};
        std::atomic<const engine::CallSubject*> subject{nullptr};
        std::atomic<std::uint64_t> line{0};  // and the step
    };

    std::uint64_t time(std::uint64_t at) const noexcept { return at <= failed ? 0 : clock_.nanoseconds(at); }
    Slot* slot_of(std::uint64_t number) noexcept {
        Slot& slot = slots_[number % kept];
        return number != none && slot.number.load(std::memory_order_acquire) == number ? &slot : nullptr;
    }
    static void finish(Slot& slot, std::uint64_t now) noexcept {
        if (slot.begun.load(std::memory_order_relaxed) == 0) { slot.begun.store(now, std::memory_order_relaxed); }
        if (slot.done.load(std::memory_order_relaxed) == 0) { slot.done.store(now, std::memory_order_relaxed); }
    }
    /// Calls visit(slot) for each entry of a call that the engine has been given.
    template <class Visit>
    void for_each_of(const Call& call, const Visit& visit) noexcept {
        for (std::uint32_t i = 0; i < call.entries; ++i) {
            if (Slot* const slot = slot_of(call.number - i)) { visit(*slot); }
        }
    }

    TickClock clock_;
    Owned<Slot[]> slots_;
    std::atomic<std::uint64_t> count_{0};
    std::uint64_t queued_ = 0;  // calls below it that are open end elsewhere; this and the step: of the rank's thread
    std::uint32_t step_ = 0;
};

}  // namespace shardkit::detail
