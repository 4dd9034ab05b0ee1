// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/machine/act.hpp>
#include <shardkit/machine/batch_steps.hpp>

namespace shardkit::spi {

/// Sees every act of a step on a model's groups, as a recorder does, or leads it, as a follower of schedules does:
/// the verbs then leave gathers and reductions to the observer, which gives them to the streams
/// (ParameterStore::hold, GradientStore::issue), in memory of its choice (GradientStore::place). Functions that it
/// does not override do nothing. Groups call it between begin_step and end_step.
class StepObserver : detail::NotCopied {
  public:
    using Act = schedule::Act;
    using BatchAct = detail::BatchAct;
    /// Whether the observer only listens, or leads.
    enum class Manner : std::uint8_t { listens, leads };

    explicit StepObserver(Manner manner = Manner::listens) noexcept : manner_(manner) {}

    bool leads() const noexcept { return manner_ == Manner::leads; }
    bool in_step() const noexcept { return in_step_; }

    /// Begins a step over `groups` groups: an Accumulation was made.
    virtual void begin_step(std::size_t /*groups*/, SourceLocation /*where*/) { set_in_step(true); }
    /// Ends the step, completed or not.
    virtual void end_step() noexcept { set_in_step(false); }
    /// Called when a window is asked for; its gather may start.
    virtual void open(std::size_t /*group*/, SourceLocation /*where*/) {}
    /// Called when the user calls `verb`, which makes the act, before any other check.
    /// @throws UsageError where the act is not the next one
    virtual void expect(Act /*act*/, std::size_t /*group*/, SourceLocation /*where*/, std::string_view /*verb*/) {}
    /// Called before an act of the program: use, zero, add, skip, norm or update.
    /// @throws UsageError where the act is not the next one
    virtual void before(Act /*act*/, std::size_t /*group*/, SourceLocation /*where*/) {}
    /// Numbers the batches of one optimizer's call behind those of the calls before. @returns the first one's number
    std::uint32_t add_batches(std::size_t batches) noexcept {
        first_batch_ = batches_;
        batches_ += static_cast<std::uint32_t>(batches);
        return first_batch_;
    }
    /// Called before each act on a batch of whole matrices, within the updates.
    /// @returns the act to make: `due`, or what a schedule that leads has in its place
    virtual BatchAct batch(BatchAct due, SourceLocation /*where*/) { return due; }
    /// Called once a norm's computation is in the compute stream; its communication follows.
    virtual void communicates(Act /*act*/) {}
    /// Called once the act's work is in the compute stream.
    virtual void after(Act /*act*/, std::size_t /*group*/, SourceLocation /*where*/) {}
    /// Called when the user calls `verb`, which completes the group's microbatches, before any other check.
    /// @throws UsageError where there are more or fewer microbatches than expected
    virtual void finish(std::size_t /*group*/, SourceLocation /*where*/, std::string_view /*verb*/) {}
    /// Called when a window has ended.
    virtual void closed(std::size_t /*group*/) noexcept {}

  protected:
    ~StepObserver() = default;
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

}  // namespace shardkit::spi

namespace shardkit::detail {

/// A group's link to the observer of its model, if any. Without one, a verb costs the test of a pointer.
class ObservedGroup {
  public:
    void set(spi::StepObserver* observer, std::size_t number) noexcept {
        observer_ = observer;
        number_ = number;
    }
    spi::StepObserver* any() const noexcept { return observer_; }
    /// Returns the observer during a step, else null.
    spi::StepObserver* in_step() const noexcept {
        if (observer_ == nullptr) [[likely]] { return nullptr; }
        return observer_->in_step() ? observer_ : nullptr;
    }

    bool led() const noexcept {
        const spi::StepObserver* const now = in_step();
        return now != nullptr && now->leads();
    }
    void open(SourceLocation where) const {
        if (auto* const now = in_step(); now != nullptr) [[unlikely]] { now->open(number_, where); }
    }
    void expect(Act act, SourceLocation where, std::string_view verb) const {
        if (auto* const now = in_step(); now != nullptr) [[unlikely]] { now->expect(act, number_, where, verb); }
    }
    void before(Act act, SourceLocation where) const {
        if (auto* const now = in_step(); now != nullptr) [[unlikely]] { now->before(act, number_, where); }
    }
    BatchAct batch(BatchAct due, SourceLocation where) const {
        if (auto* const now = in_step(); now != nullptr) [[unlikely]] { return now->batch(due, where); }
        return due;
    }
    void communicates(Act act) const {
        if (auto* const now = in_step(); now != nullptr) [[unlikely]] { now->communicates(act); }
    }
    void after(Act act, SourceLocation where) const {
        if (auto* const now = in_step(); now != nullptr) [[unlikely]] { now->after(act, number_, where); }
    }
    void finish(SourceLocation where, std::string_view verb) const {
        if (auto* const now = in_step(); now != nullptr) [[unlikely]] { now->finish(number_, where, verb); }
    }
    void closed() const noexcept {
        if (auto* const now = in_step(); now != nullptr) [[unlikely]] { now->closed(number_); }
    }

  private:
    spi::StepObserver* observer_ = nullptr;
    std::size_t number_ = 0;
};

}  // namespace shardkit::detail
