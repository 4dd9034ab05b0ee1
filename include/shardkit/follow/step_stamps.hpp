// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include <shardkit/follow/measured_step.hpp>
#include <shardkit/follow/step_program.hpp>
#include <shardkit/schedule/schedule.hpp>

namespace shardkit::detail {

/// A stream that runs work on the host, so that the host's clock can time it.
template <class S>
concept TimedByHost = requires(const S& stream) {
    stream.submit([] {});
};
/// Returns whether it is one, where the stream's engine is a value.
template <class S>
constexpr bool is_timed_by_host([[maybe_unused]] const S& stream) noexcept {
    if constexpr (requires { stream.on_device(); }) {
        return !stream.on_device();
    } else {
        return TimedByHost<S>;
    }
}

/// Takes the timestamps of a step, by operation. It takes none before `start`.
/// Cost:    up to four reads of the clock for each operation, and for communication two commands in its stream; if it
///          does not measure, a test for each
class StepStamps {
  public:
    using Clock = std::chrono::steady_clock;
    using Time = Clock::time_point;

    /// Starts to measure from the next step on, for steps of at most `operations` operations.
    void start(std::size_t operations) {
        stamps_.resize(operations);
        whole_ = false;
        taken_ = true;
    }
    bool taken() const noexcept { return taken_; }
    /// Returns whether the last step was measured from its start to its end.
    bool whole() const noexcept { return whole_; }

    Time now() const noexcept { return taken_ ? Clock::now() : Time(); }
    void begin() noexcept {
        whole_ = false;
        began_ = now();
    }
    /// Marks that the work before the first verb was given to the streams.
    void opened() noexcept { opened_ = now(); }
    void end(bool whole) noexcept { whole_ = taken_ && whole; }

    /// Mark the stages of a verb: it is called; what it waits for is complete; it begins to communicate; its work is
    /// done; the work that follows it was given to the streams.
    void arrived(std::size_t op, Time at) noexcept { set(op, &Stamp::arrived, at); }
    void ready(std::size_t op) noexcept { set(op, &Stamp::ready, now()); }
    void done(std::size_t op) noexcept { set(op, &Stamp::done, now()); }
    void left(std::size_t op) noexcept { set(op, &Stamp::left, now()); }

    template <class Stream>
    void marked(std::size_t op, const Stream& stream) {
        set(op, &Stamp::marked, now());
        communicates(op, stream);
    }

    /// Mark the begin and the end of an operation's collectives, in the order of the stream.
    template <class Stream>
    void communicates(std::size_t op, const Stream& stream) {
        submit(op, &Stamp::begins, stream);
    }
    template <class Stream>
    void communicated(std::size_t op, const Stream& stream) {
        submit(op, &Stamp::ends, stream);
    }

    /// Returns the times of the step. @pre whole(), and the streams have reached the end of the step
    schedule::MeasuredStep measured(const StepProgram& program) const {
        schedule::MeasuredStep step;
        step.began = began_;
        step.spans.reserve(1 + 4 * program.steps.size());  // the same capacity on every rank
        const auto add = [&](schedule::SpanKind kind, std::size_t op, Time begin, Time end) {
            if (end <= begin) { return 0.0; }
            const schedule::OpTime time{seconds(begin), seconds(end)};
            step.spans.push_back({kind, op, time});
            return time.end - time.begin;
        };
        Time resumed = opened_;
        add(schedule::SpanKind::waits, 0, began_, opened_);
        for (std::size_t i = 0; i < program.steps.size(); ++i) {
            const Stamp& at = stamps_[i];
            const Act act = program.steps[i].op.act;
            const bool between = act == Act::to_owners || act == Act::from_owners;
            if (!schedule::is_of_program(act) || act == Act::norm || between) {
                step.communication += add(schedule::SpanKind::communicates, i, at.begins, at.ends);
            }
            if (!schedule::is_of_program(act) || schedule::is_of_batch(act)) {
                continue;
            }                                                   // batches are parts of the updates' call
            const std::size_t last = last_of_call(program, i);  // updates are one call
            const Time ready = act == Act::use ? at.done : stamps_[last].ready;
            const Time computed = act == Act::norm ? at.marked : at.done;
            step.compute += add(schedule::SpanKind::computes, i, resumed, at.arrived);
            add(schedule::SpanKind::waits, i, at.arrived, ready);
            step.compute += add(schedule::SpanKind::computes, i, ready, computed);
            resumed = stamps_[last].left;
            add(schedule::SpanKind::waits, i, computed, resumed);
            i = last;
        }
        step.seconds = seconds(resumed);
        return step;
    }

  private:
    struct Stamp {
        Time arrived, ready, marked, done, left;
        Time begins, ends;  // of the operation's collectives
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
