// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <shardkit/core/source_location.hpp>
#include <shardkit/plan/act.hpp>

namespace shardkit::detail {

/// Who is told of every verb of a step on a model's groups: to write it down, or, one who leads, to give the
/// communication that the verbs would make to the streams where a schedule says, and to say where leased buffers lie.
class StepDirector {
  public:
    /// Whether gathers and reductions are left to the director.
    enum class Manner : std::uint8_t { listens, leads };

    explicit StepDirector(Manner manner) noexcept : manner_(manner) {}
    StepDirector(const StepDirector&) = delete;
    StepDirector& operator=(const StepDirector&) = delete;

    bool leads() const noexcept { return manner_ == Manner::leads; }
    /// Between begin_step and end_step; outside nothing is told.
    bool in_step() const noexcept { return in_step_; }

    /// A step over so many groups begins: an Accumulation was made.
    virtual void begin_step(std::size_t groups, SourceLocation where) = 0;
    /// It ended, completed or not.
    virtual void end_step() noexcept = 0;
    /// A window is asked for, whose gather may start.
    virtual void open(std::size_t group, SourceLocation where) = 0;
    /// `verb` is called, which is the act: told before anything else may refuse it.
    /// @throws UsageError where it is not the next one
    virtual void expect(Act act, std::size_t group, SourceLocation where, std::string_view verb) = 0;
    /// Before an act of the program: use, zero, add, skip, norm or update.
    /// @throws UsageError where it is not the next one
    virtual void before(Act act, std::size_t group, SourceLocation where) = 0;
    /// What a norm computes is given to the compute stream; from here it communicates.
    virtual void communicates(Act act) = 0;
    /// Once its work was given to the compute stream.
    virtual void after(Act act, std::size_t group, SourceLocation where) = 0;
    /// `verb` is called, with which every microbatch of the group is in: told before anything else may refuse it.
    /// @throws UsageError where there are more or fewer than expected
    virtual void finish(std::size_t group, SourceLocation where, std::string_view verb) = 0;
    /// A window has ended.
    virtual void closed(std::size_t group) noexcept = 0;

  protected:
    ~StepDirector() = default;
    void set_in_step(bool in_step) noexcept { in_step_ = in_step; }

  private:
    Manner manner_;
    bool in_step_ = false;
};

/// A group's place in the model that a director leads. Without one, a verb costs the test of a pointer.
class DirectedGroup {
  public:
    void set(StepDirector* director, std::size_t number) noexcept {
        director_ = director;
        number_ = number;
    }
    StepDirector* any() const noexcept { return director_; }
    /// Null outside of a step too.
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
