// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/machine/act.hpp>
#include <shardkit/machine/batch_steps.hpp>

namespace shardkit::detail {

/// An observer of every verb of a step on a model's groups. A recorder writes the verbs down. A follower leads: it
/// gives the communication of the verbs to the streams where a schedule says, and chooses the memory of leased
/// buffers.
class StepDirector : NotCopied {
  public:
    /// Whether the director only listens, or leads: then gathers and reductions are left to it.
    enum class Manner : std::uint8_t { listens, leads };

    explicit StepDirector(Manner manner) noexcept : manner_(manner) {}

    bool leads() const noexcept { return manner_ == Manner::leads; }
    /// Returns whether a step is open, between begin_step and end_step. The groups call the director only then.
    bool in_step() const noexcept { return in_step_; }

    /// Begins a step over `groups` groups: an Accumulation was made.
    virtual void begin_step(std::size_t groups, SourceLocation where) = 0;
    /// Ends the step, completed or not.
    virtual void end_step() noexcept = 0;
    /// Called when a window is asked for; its gather may start.
    virtual void open(std::size_t group, SourceLocation where) = 0;
    /// Called when the user calls `verb`, which makes the act, before any other check.
    /// @throws UsageError where the act is not the next one
    virtual void expect(Act act, std::size_t group, SourceLocation where, std::string_view verb) = 0;
    /// Called before an act of the program: use, zero, add, skip, norm or update.
    /// @throws UsageError where the act is not the next one
    virtual void before(Act act, std::size_t group, SourceLocation where) = 0;
    /// Numbers the batches of one optimizer's call behind those of the calls before. @returns the first one's number
    std::uint32_t add_batches(std::size_t batches) noexcept {
        first_batch_ = batches_;
        batches_ += static_cast<std::uint32_t>(batches);
        return first_batch_;
    }
    /// Called before each act on a batch of whole matrices, within the updates.
    /// @returns the act to make: `due`, or what a schedule that leads has in its place
    virtual BatchAct batch(BatchAct due, SourceLocation where) = 0;
    /// Called once a norm's computation is in the compute stream; its communication follows.
    virtual void communicates(Act act) = 0;
    /// Called once the act's work is in the compute stream.
    virtual void after(Act act, std::size_t group, SourceLocation where) = 0;
    /// Called when the user calls `verb`, which completes the group's microbatches, before any other check.
    /// @throws UsageError where there are more or fewer microbatches than expected
    virtual void finish(std::size_t group, SourceLocation where, std::string_view verb) = 0;
    /// Called when a window has ended.
    virtual void closed(std::size_t group) noexcept = 0;

  protected:
    ~StepDirector() = default;
    void set_in_step(bool in_step) noexcept {
        in_step_ = in_step;
        first_batch_ = batches_ = 0;
    }
    /// Returns whether a batch is one of the call that goes on.
    bool is_of_call(std::uint32_t batch) const noexcept { return batch >= first_batch_ && batch < batches_; }

  private:
    Manner manner_;
    bool in_step_ = false;
    std::uint32_t first_batch_ = 0;  // of the call that goes on, and behind its last
    std::uint32_t batches_ = 0;
};

/// A group's link to the director of its model, if any. Without one, a verb costs the test of a pointer.
class DirectedGroup {
  public:
    void set(StepDirector* director, std::size_t number) noexcept {
        director_ = director;
        number_ = number;
    }
    StepDirector* any() const noexcept { return director_; }
    /// Returns the director during a step, else null.
    StepDirector* director() const noexcept {
        if (director_ == nullptr) [[likely]] { return nullptr; }
        return director_->in_step() ? director_ : nullptr;
    }
    std::size_t number() const noexcept { return number_; }

    bool led() const noexcept {
        const StepDirector* const now = director();
        return now != nullptr && now->leads();
    }
    void open(SourceLocation where) const {
        if (auto* const now = director(); now != nullptr) [[unlikely]] { now->open(number_, where); }
    }
    void expect(Act act, SourceLocation where, std::string_view verb) const {
        if (auto* const now = director(); now != nullptr) [[unlikely]] { now->expect(act, number_, where, verb); }
    }
    void before(Act act, SourceLocation where) const {
        if (auto* const now = director(); now != nullptr) [[unlikely]] { now->before(act, number_, where); }
    }
    BatchAct batch(BatchAct due, SourceLocation where) const {
        if (auto* const now = director(); now != nullptr) [[unlikely]] { return now->batch(due, where); }
        return due;
    }
    void communicates(Act act) const {
        if (auto* const now = director(); now != nullptr) [[unlikely]] { now->communicates(act); }
    }
    void after(Act act, SourceLocation where) const {
        if (auto* const now = director(); now != nullptr) [[unlikely]] { now->after(act, number_, where); }
    }
    void finish(SourceLocation where, std::string_view verb) const {
        if (auto* const now = director(); now != nullptr) [[unlikely]] { now->finish(number_, where, verb); }
    }
    void closed() const noexcept {
        if (auto* const now = director(); now != nullptr) [[unlikely]] { now->closed(number_); }
    }

  private:
    StepDirector* director_ = nullptr;
    std::size_t number_ = 0;
};

}  // namespace shardkit::detail
