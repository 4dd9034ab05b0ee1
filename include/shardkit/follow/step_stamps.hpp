// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <shardkit/comm/stream.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/follow/measured_step.hpp>
#include <shardkit/follow/step_program.hpp>
#include <shardkit/schedule/schedule.hpp>

namespace shardkit::detail {

/// Takes the timestamps of a step, by operation: by the host's clock, or by the device whose streams these are. It
/// takes none before `start`, and none of a step that is captured into a graph.
/// Cost:    up to four reads of the clock for each operation, and for communication two commands in its stream, or up
///          to seven of a device's events; if it does not measure, a test for each
class StepStamps {
  public:
    using Clock = std::chrono::steady_clock;
    using Time = Clock::time_point;

    /// Starts to measure from the next step on, for steps of at most `operations` operations whose verbs are in the
    /// order of `compute`.
    void start(std::size_t operations, const Stream& compute, SourceLocation where) {
        stamps_.resize(number(operations, arrives));
        compute_ = compute;
        times_.reset(compute.make_times(stamps_.size(), where));
        whole_ = false;
        wanted_ = taken_ = true;
    }
    bool taken() const noexcept { return taken_; }
    /// Returns whether the last step was measured from its start to its end.
    bool whole() const noexcept { return whole_; }
    /// Says why the last step has no times.
    const char* why_none() const noexcept {
        return wanted_ && !taken_ ? "the last step was captured into a graph, whose parts have no times"
                                  : "the last step was not measured";
    }

    Time now() const noexcept { return taken_ && !times_ ? Clock::now() : Time(); }
    void begin() noexcept {
        whole_ = false;
        taken_ = wanted_ && compute_.capture() == 0;
        set(of_begin, now());
    }
    /// Marks that the work before the first verb was given to the streams.
    void opened() noexcept { set(of_opened, now()); }
    void end(bool whole) noexcept { whole_ = taken_ && whole; }

    /// Mark the stages of a verb: it is called; what it waits for is complete; it begins to communicate; its work is
    /// done; the work that follows it was given to the streams.
    void arrived(std::size_t op, Time at) noexcept { set(number(op, arrives), at); }
    void ready(std::size_t op) noexcept { set(number(op, is_ready), now()); }
    void done(std::size_t op) noexcept { set(number(op, is_done), now()); }
    void left(std::size_t op) noexcept { set(number(op, leaves), now()); }

    void marked(std::size_t op, const Stream& stream) {
        set(number(op, marks), now());
        communicates_computed(op, stream);
    }

    /// Mark the begin and the end of an operation's collectives, in the order of the stream.
    void communicates(std::size_t op, const Stream& stream) { submit(number(op, begins), stream); }
    void communicated(std::size_t op, const Stream& stream) { submit(number(op, ends), stream); }

    /// Makes a device's stream wait for what was computed so far, as the collectives that come next do themselves:
    /// this is to be no communication.
    void await_computed(const Stream& stream) {
        if (taken_ && times_) [[unlikely]] { stream.wait(compute_.record()); }
    }
    void communicates_computed(std::size_t op, const Stream& stream) {
        await_computed(stream);
        communicates(op, stream);
    }

    /// Returns the times of the step. @pre whole(), and the streams have reached the end of the step
    schedule::MeasuredStep measured(const StepProgram& program, SourceLocation where) {
        if (times_) { read_times(number(program.steps.size(), arrives), where); }
        schedule::MeasuredStep step;
        step.began = stamps_[of_begin];
        step.spans.reserve(1 + 4 * program.steps.size());  // the same capacity on every rank
        const auto add = [&](schedule::SpanKind kind, std::size_t op, Time begin, Time end) {
            if (end <= begin) { return 0.0; }
            const schedule::OpTime time{seconds(begin), seconds(end)};
            step.spans.push_back({kind, op, time});
            return time.end - time.begin;
        };
        Time resumed = stamps_[of_opened];
        add(schedule::SpanKind::waits, 0, stamps_[of_begin], resumed);
        for (std::size_t i = 0; i < program.steps.size(); ++i) {
            const Time* const at = &stamps_[number(i, arrives)];
            const Act act = program.steps[i].op.act;
            const bool between = act == Act::to_owners || act == Act::from_owners;
            if (!schedule::is_of_program(act) || act == Act::norm || between) {
                step.communication += add(schedule::SpanKind::communicates, i, at[begins], at[ends]);
            }
            if (!schedule::is_of_program(act) || schedule::is_of_batch(act)) {
                continue;
            }                                                   // batches are parts of the updates' call
            const std::size_t last = last_of_call(program, i);  // updates are one call
            const Time ready = act == Act::use ? at[is_done] : stamps_[number(last, is_ready)];
            const Time computed = act == Act::norm ? at[marks] : at[is_done];
            step.compute += add(schedule::SpanKind::computes, i, resumed, at[arrives]);
            add(schedule::SpanKind::waits, i, at[arrives], ready);
            step.compute += add(schedule::SpanKind::computes, i, ready, computed);
            resumed = stamps_[number(last, leaves)];
            add(schedule::SpanKind::waits, i, computed, resumed);
            i = last;
        }
        step.seconds = seconds(resumed);
        return step;
    }

  private:
    /// Of an operation; the last three are of its collectives, and how many there are.
    enum Stage : std::uint8_t { arrives, is_ready, marks, is_done, leaves, begins, ends, stages };

    // Numbers of times: the moment at which a device's are read, those of the step, those of its operations.
    static constexpr std::size_t of_reading = 0, of_begin = 1, of_opened = 2;
    static constexpr std::size_t number(std::size_t op, Stage stage) noexcept {
        return of_opened + 1 + op * stages + stage;
    }

    static std::size_t last_of_call(const StepProgram& program, std::size_t op) noexcept {
        if (program.steps[op].op.act != Act::update) { return op; }
        while (op + 1 < program.steps.size() && program.steps[op + 1].op.act == Act::update) { ++op; }
        return op;
    }
    double seconds(Time at) const noexcept { return std::chrono::duration<double>(at - stamps_[of_begin]).count(); }
    void set(std::size_t number, Time at) noexcept {
        if (!taken_) [[likely]] { return; }
        if (times_) {
            compute_.take_time(*times_, number);
        } else {
            stamps_[number] = at;
        }
    }
    void submit(std::size_t number, const Stream& stream) {
        if (!taken_) [[likely]] { return; }
        if (times_) { return stream.take_time(*times_, number); }
        stream.submit([at = &stamps_[number]] { *at = Clock::now(); });
    }
    /// Brings the device's times of a step to the host's clock, which is read when the device has taken one more.
    void read_times(std::size_t taken, SourceLocation where) {
        compute_.take_time(*times_, of_reading);
        compute_.synchronize(where);
        const Time now = Clock::now();
        const auto since_begin = [&](std::size_t i) {
            const std::chrono::duration<double> seconds(times_->seconds(of_begin, i, where));
            return std::chrono::duration_cast<Clock::duration>(seconds);
        };
        stamps_[of_begin] = now - since_begin(of_reading);
        for (std::size_t i = of_opened; i < taken; ++i) { stamps_[i] = stamps_[of_begin] + since_begin(i); }
    }

    std::vector<Time> stamps_;  // by number
    Stream compute_;
    std::unique_ptr<engine::WorkTimes> times_;  // null: the host's clock takes them
    bool wanted_ = false;
    bool taken_ = false;  // of this step
    bool whole_ = false;
};

}  // namespace shardkit::detail
