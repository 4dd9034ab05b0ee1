// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include <shardkit/schedule/measured_step.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/step_program.hpp>

namespace shardkit::detail {

/// A stream that runs the host's work, so that the host's clock says when.
template <class S>
concept TimedByHost = requires(const S& stream) {
    stream.submit([] {});
};

/// The moments of a step, by operation. Nothing is taken until `start`.
/// Cost:    per operation up to four looks at the clock, and for communication two commands of its stream; where
///          nothing is taken a test for each
class StepStamps {
  public:
    using Clock = std::chrono::steady_clock;
    using Time = Clock::time_point;

    /// From the next step on; of a step of at most so many operations.
    void start(std::size_t operations) {
        stamps_.resize(operations);
        whole_ = false;
        taken_ = true;
    }
    bool taken() const noexcept { return taken_; }
    /// Whether the last step was measured from its start to its end.
    bool whole() const noexcept { return whole_; }

    Time now() const noexcept { return taken_ ? Clock::now() : Time(); }
    void begin() noexcept {
        whole_ = false;
        began_ = now();
    }
    /// What is given to the streams before the first verb is given.
    void opened() noexcept { opened_ = now(); }
    void end(bool whole) noexcept { whole_ = taken_ && whole; }

    /// A verb is called; what it waited for is there; it begins to communicate; its work is done; what is to follow
    /// it is given to the streams.
    void arrived(std::size_t op, Time at) noexcept { set(op, &Stamp::arrived, at); }
    void ready(std::size_t op) noexcept { set(op, &Stamp::ready, now()); }
    void done(std::size_t op) noexcept { set(op, &Stamp::done, now()); }
    void left(std::size_t op) noexcept { set(op, &Stamp::left, now()); }

    template <class Stream>
    void marked(std::size_t op, const Stream& stream) {
        set(op, &Stamp::marked, now());
        communicates(op, stream);
    }

    /// In the stream's order: an operation's collectives begin, and have ended.
    template <class Stream>
    void communicates(std::size_t op, const Stream& stream) {
        submit(op, &Stamp::begins, stream);
    }
    template <class Stream>
    void communicated(std::size_t op, const Stream& stream) {
        submit(op, &Stamp::ends, stream);
    }

    /// @pre whole, and the streams have got to the end of the step
    MeasuredStep measured(const StepProgram& program) const {
        MeasuredStep step;
        step.began = began_;
        step.spans.reserve(1 + 4 * program.steps.size());  // as much on every rank
        const auto add = [&](SpanKind kind, std::size_t op, Time begin, Time end) {
            if (end <= begin) { return 0.0; }
            const OpTime time{seconds(begin), seconds(end)};
            step.spans.push_back({kind, op, time});
            return time.end - time.begin;
        };
        Time resumed = opened_;
        add(SpanKind::waits, 0, began_, opened_);
        for (std::size_t i = 0; i < program.steps.size(); ++i) {
            const Stamp& at = stamps_[i];
            const Act act = program.steps[i].op.act;
            if (!is_of_program(act) || act == Act::norm) {
                step.communication += add(SpanKind::communicates, i, at.begins, at.ends);
            }
            if (!is_of_program(act)) { continue; }
            const std::size_t last = last_of_call(program, i);  // updates are one call
            const Time ready = act == Act::use ? at.done : stamps_[last].ready;
            const Time computed = act == Act::norm ? at.marked : at.done;
            step.compute += add(SpanKind::computes, i, resumed, at.arrived);
            add(SpanKind::waits, i, at.arrived, ready);
            step.compute += add(SpanKind::computes, i, ready, computed);
            resumed = stamps_[last].left;
            add(SpanKind::waits, i, computed, resumed);
            i = last;
        }
        step.seconds = seconds(resumed);
        return step;
    }

  private:
    struct Stamp {
        Time arrived, ready, marked, done, left;
        Time begins, ends;  // of what communicates
    };

    static std::size_t last_of_call(const StepProgram& program, std::size_t op) noexcept {
        if (program.steps[op].op.act != Act::update) { return op; }
        while (op + 1 < program.steps.size() && program.steps[op + 1].op.act == Act::update) { ++op; }
        return op;
    }
    double seconds(Time at) const noexcept { return std::chrono::duration<double>(at - began_).count(); }
    void set(std::size_t op, Time Stamp::*which, Time at) noexcept {
        if (taken_) [[unlikely]] { stamps_[op].*which = at; }
    }
    template <class Stream>
    void submit(std::size_t op, Time Stamp::*which, const Stream& stream) {
        if constexpr (TimedByHost<Stream>) {
            if (taken_) [[unlikely]] {
                stream.submit([at = &(stamps_[op].*which)] { *at = Clock::now(); });
            }
        }
    }

    std::vector<Stamp> stamps_;
    Time began_;
    Time opened_;
    bool taken_ = false;
    bool whole_ = false;
};

}  // namespace shardkit::detail
