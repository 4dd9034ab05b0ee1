// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/follow/measured_step.hpp>
#include <shardkit/follow/step_program.hpp>
#include <shardkit/follow/step_ranges.hpp>
#include <shardkit/follow/step_stamps.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/spi/groups.hpp>
#include <shardkit/spi/ranks.hpp>
#include <shardkit/spi/step_observer.hpp>

namespace shardkit::detail {

/// Follows a schedule as the program calls the verbs of its steps: gives the communication between them to the
/// streams, chooses the memory of leased buffers, and refuses a verb that is not the next operation.
/// Cost:    no allocation; a comparison for each operation, and two waits for events where it takes a slot
class StepCursor final : public spi::StepObserver {
  public:
    StepCursor(Rank& rank, std::vector<GroupDescription> groups, std::vector<Group*> led,
               std::span<const Schedule> schedules, SourceLocation where)
        : StepObserver(Manner::leads),
          rank_(rank),
          groups_(std::move(groups)),
          led_(std::move(led)),
          added_(groups_.size()),
          holds_(groups_.size()) {
        for (const Schedule& schedule : schedules) {
            programs_.emplace_back(schedule, groups_, where);
            events_.emplace_back(programs_.back().plan.slots.size());
            ranges_.emplace_back(rank.compute_stream().ranges(), schedule, groups_);
        }
    }

    /// Starts to lead the groups' steps, with an arena in the place of their slots.
    /// @pre no observer leads them
    void lead() {
        rank_.settle();  // no work of an earlier step may use the slots
        RankResources::of(rank_).pools.drop();
        arena_ = rank_.buffer<std::uint8_t>(arena_bytes().value);
        for (std::size_t g = 0; g < led_.size(); ++g) { led_[g]->observed().set(this, g); }
    }
    /// Ends leading: waits for the streams' work on the arena.
    ~StepCursor() {
        if (in_step()) { end_program("a schedule ended while a step that follows it is under way"); }
        rank_.settle();
        for (Group* const group : led_) { leave(*group); }
    }

    std::size_t schedules() const noexcept { return programs_.size(); }
    /// Returns the bytes of the largest schedule: all of them use one arena.
    ByteCount arena_bytes() const noexcept {
        std::size_t bytes = 0;
        for (const StepProgram& program : programs_) { bytes = std::max(bytes, program.plan.arena_bytes); }
        return ByteCount(bytes);
    }
    /// Chooses the schedule that the next step follows: the largest number that a rank asks for.
    std::size_t choose(std::size_t wish, SourceLocation where) {
        if (in_step()) { throw_usage_error(where, "choose: a step is under way; choose between two steps"); }
        require_argument(wish < programs_.size(), where, "choose: schedule ", wish, " given, expected one below ",
                         programs_.size());
        const List<double> all = gather_values(rank_, std::array{static_cast<double>(wish)},
                                               {where, subject_of(rank_.world(), "the next step's schedule")});
        const auto chosen = static_cast<std::size_t>(*std::max_element(all.begin(), all.end()));
        if (chosen != current_) {
            rank_.settle();  // the schedules' slots share memory
            current_ = chosen;
            at_ = 0;
            stamps_.end(false);  // they belong to the other schedule
        }
        return chosen;
    }

    void measure(SourceLocation where) {
        if (in_step()) { throw_usage_error(where, "measure: a step is under way; call it between two steps"); }
        std::size_t operations = 0;
        for (const StepProgram& each : programs_) { operations = std::max(operations, each.steps.size()); }
        stamps_.start(operations, rank_.compute_stream(), where);
    }
    schedule::MeasuredStep measured(SourceLocation where) {
        if (in_step() || !stamps_.whole()) {
            throw_usage_error(where, "measured: ", in_step() ? "a step is under way" : stamps_.why_none(),
                              "; expected a whole step behind measure()");
        }
        rank_.synchronize();
        return stamps_.measured(program(), where);
    }

    void begin_step(std::size_t groups, SourceLocation where) override {
        if (groups != led_.size()) {
            throw_usage_error(where, "a step over ", groups, " groups follows a schedule of ", led_.size());
        }
        for (std::size_t g = 0; g < led_.size(); ++g) {
            if (const std::size_t windows = led_[g]->open_windows(); windows > 0) {
                throw_usage_error(where, "'", groups_[g].path, "': a step that follows a schedule begins while ",
                                  windows, " window(s) are open; reshard them first");
            }
        }
        // An abandoned step has no events for the last use of its buffers.
        if (at_ != 0 && at_ != program().steps.size()) { rank_.settle(); }
        at_ = batch_ = behind_batches_ = 0;
        failure_ = nullptr;
        added_.assign(added_.size(), 0);
        set_in_step(true);
        stamps_.begin();
        stamps_.await_computed(rank_.communication_stream());
        stamps_.await_computed(rank_.reduction_stream());
        try {
            advance(where);
            stamps_.opened();
        } catch (...) {
            end_step();
            throw;
        }
    }
    void end_step() noexcept override {
        set_in_step(false);
        stamps_.end(!failure_ && at_ == program().steps.size());
        ranges().end_all();
        for (std::size_t g = 0; g < led_.size(); ++g) {
            if (holds_[g] != 0) { let_go(g); }
        }
    }
    void expect(Act act, std::size_t group, SourceLocation where, std::string_view verb) override {
        go_on(where);
        if (act == Act::update) { pass_batches(); }
        const Step* const next = at_ < program().steps.size() ? &program().steps[at_] : nullptr;
        const bool expected = next != nullptr && next->op.act == act && (act == Act::norm || next->op.group == group);
        if (expected) { return; }
        fail(where, verb, act == Act::norm ? "" : concat(" of '", groups_[group].path, "'"), " called, expected ",
             operation_text(program(), at_, groups_));
    }
    void before(Act act, std::size_t group, SourceLocation where) override {
        const auto arrived = stamps_.now();
        expect(act, group, where, verb_of(act));
        const Step* const next = &program().steps[at_];
        stamps_.arrived(at_, arrived);
        // The updates of a step are one call.
        const bool calls = act != Act::update || at_ == 0 || program().steps[at_ - 1].op.act != Act::update;
        if (calls) { called_ = at_; }
        ++at_;
        if (act == Act::zero && next->takes != none) {
            await(next->takes, rank_.compute_stream());
            led_[group]->gradients().place(memory(next->takes));
        }
        if (act == Act::add) { ++added_[group]; }
        if (stamps_.taken()) [[unlikely]] {
            await_reduced(act, group);
            stamps_.ready(at_ - 1);
        }
        if (calls && (act == Act::norm || act == Act::update)) { ranges().start(called_); }
    }
    BatchAct batch(BatchAct due, SourceLocation where) override {
        end_batch_act();
        const bool left = batch_ < behind_batches_ && is_of_call(program().steps[batch_].op.microbatch);
        if (!left) {
            fail(where, describe(schedule::Op{due.act, 0, due.batch}, groups_), " called, expected ",
                 operation_text(program(), batch_, groups_));
        }
        const schedule::Op& op = program().steps[batch_].op;
        if (schedule::lane_of(op.act) != schedule::Lane::compute) {
            travels_ = batch_;
            stamps_.communicates_computed(batch_, rank_.communication_stream());
        }
        ++batch_;
        return {op.act, op.microbatch};
    }
    void communicates(Act /*act*/) override { stamps_.marked(called_, rank_.reduction_stream()); }
    void after(Act act, std::size_t /*group*/, SourceLocation where) override {
        if (act == Act::update) {
            end_batch_act();
            if (batch_ != behind_batches_) {
                fail(where, "the updates are made, expected ", operation_text(program(), batch_, groups_), " before");
            }
        }
        if (act == Act::norm) { stamps_.communicated(called_, rank_.reduction_stream()); }
        stamps_.done(called_);
        ranges().end(called_);
        if (act == Act::use) { ranges().start(called_); }
        advance(where);
        stamps_.left(called_++);
    }
    void finish(std::size_t group, SourceLocation where, std::string_view verb) override {
        go_on(where);
        if (added_[group] == program().microbatches[group]) { return; }
        fail(where, verb, " of '", groups_[group].path, "' called for the last microbatch after ", added_[group],
             ", expected ", program().microbatches[group], "; the next operation is ",
             operation_text(program(), at_, groups_));
    }
    void closed(std::size_t group) noexcept override {
        if (failure_) { return; }
        try {
            const auto arrived = stamps_.now();
            expect(Act::close, group, where_, verb_of(Act::close));
            const std::size_t slot = program().steps[at_].gives_back;
            const std::size_t op = at_++;
            stamps_.arrived(op, arrived);
            stamps_.ready(op);
            if (slot != none) {
                let_go(group);
                given_back()[slot] = rank_.compute_stream().record();
            }
            stamps_.done(op);
            ranges().end(op);
            advance(where_);
            stamps_.left(op);
        } catch (...) { failure_ = std::current_exception(); }
    }

  private:
    using Step = StepProgram::Step;
    static constexpr std::size_t none = StepProgram::none;

    const StepProgram& program() const noexcept { return programs_[current_]; }
    std::vector<Event>& given_back() noexcept { return events_[current_]; }
    StepRanges& ranges() noexcept { return ranges_[current_]; }

    void leave(Group& group) noexcept {
        if (group.observed().any() != this) { return; }
        if (group.uses_scheduled_memory()) {
            end_program("a schedule ended while a window or gradients of '", group.path(),
                        "' of a step that followed it live on, in its memory");
        }
        group.observed().set(nullptr, 0);
        group.gradients().place(nullptr);
        group.gradients().place_addend(nullptr);
    }

    /// Precedes every verb.
    void go_on(SourceLocation where) {
        if (failure_) { std::rethrow_exception(failure_); }
        advance(where);
    }
    /// Gives the communication that is due to its streams.
    void advance(SourceLocation where) {
        where_ = where;
        for (; at_ < program().steps.size() && !schedule::is_of_program(program().steps[at_].op.act); ++at_) {
            try {
                issue(program().steps[at_], where);
            } catch (...) {
                failure_ = std::current_exception();
                throw;
            }
        }
    }
    void issue(const Step& step, SourceLocation where) {
        const Act act = step.op.act;
        const auto stream = act == Act::gather ? rank_.communication_stream() : rank_.reduction_stream();
        Group& group = *led_[step.op.group];
        ranges().start(at_);
        await(step.takes, stream);
        if (stamps_.taken()) [[unlikely]] {  // what its collectives wait for themselves is to be no communication
            if (act == Act::gather) { group.parameters().await_update(); }
            if (act == Act::reduce) { group.gradients().await_added(); }
        }
        stamps_.communicates(at_, stream);
        if (act == Act::gather) {
            group.parameters().hold(memory(step.takes), where);
            holds_[step.op.group] = step.takes != none ? 1 : 0;
        } else if (act == Act::reduce) {
            if (step.takes != none) { group.gradients().place_addend(memory(step.takes)); }
            group.gradients().reduce_added(where);
            give_back(step.takes, stream);
            give_back(step.gives_back, stream);
        } else {
            group.gradients().finish(where);
        }
        stamps_.communicated(at_, stream);
        ranges().end(at_);
    }

    /// The acts on batches are made within the updates that follow.
    void pass_batches() noexcept {
        if (behind_batches_ != 0) { return; }
        batch_ = at_;
        while (at_ < program().steps.size() && schedule::is_of_batch(program().steps[at_].op.act)) { ++at_; }
        behind_batches_ = at_;
    }
    void end_batch_act() {
        if (travels_ != none) { stamps_.communicated(travels_, rank_.communication_stream()); }
        travels_ = none;
    }

    /// Makes the compute stream wait before the verb does, so that this wait is not measured as computation.
    void await_reduced(Act act, std::size_t group) {
        for (std::size_t g = 0; g < led_.size(); ++g) {
            if (act == Act::norm || (act == Act::update && g == group)) { led_[g]->gradients().wait(); }
        }
    }
    void await(std::size_t slot, const Stream& stream) {
        if (slot == none) { return; }
        for (const std::size_t before : program().plan.slots[slot].after) {
            if (before != none) { stream.wait(given_back()[before]); }
        }
    }
    void give_back(std::size_t slot, const Stream& stream) {
        if (slot != none) { given_back()[slot] = stream.record(); }
    }
    void* memory(std::size_t slot) const noexcept {
        return slot == none ? nullptr : arena_.data() + program().plan.slots[slot].offset;
    }
    void let_go(std::size_t group) noexcept {
        holds_[group] = 0;
        led_[group]->parameters().let_go();
    }

    template <class... Pieces>
    [[noreturn]] void fail(SourceLocation where, const Pieces&... pieces) {
        try {
            throw_usage_error(where, "the step leaves its schedule at operation ", at_, ": ", pieces...);
        } catch (...) {
            failure_ = std::current_exception();
            throw;
        }
    }
    Rank& rank_;
    std::vector<GroupDescription> groups_;
    std::vector<Group*> led_;
    std::vector<StepProgram> programs_;
    std::vector<std::vector<Event>> events_;  // last use, by program and slot
    std::vector<StepRanges> ranges_;          // by program
    std::size_t current_ = 0;                 // index of the program
    HostBuffer<std::uint8_t> arena_;
    std::vector<std::uint32_t> added_;  // microbatches, by group
    std::vector<char> holds_;           // full copy in the arena, by group
    StepStamps stamps_;
    std::size_t at_ = 0;
    std::size_t called_ = 0;  // the operation of the running verb
    std::size_t batch_ = 0;   // the next act on a batch of matrices, while the updates are made
    std::size_t behind_batches_ = 0;
    std::size_t travels_ = none;  // the last one, if it communicates
    SourceLocation where_{};      // the last verb's location
    std::exception_ptr failure_;
};

}  // namespace shardkit::detail
