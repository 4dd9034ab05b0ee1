// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/end_program.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/step_program.hpp>
#include <shardkit/sharded/step_director.hpp>

namespace shardkit::detail {

/// What a cursor asks of a group, whatever its types are.
struct LedGroup {
    void* state = nullptr;
    void (*hold)(void* state, void* memory, SourceLocation where) = nullptr;
    void (*let_go)(void* state) noexcept = nullptr;
    void (*lead)(void* state, StepDirector& director, std::size_t number) noexcept = nullptr;
    void (*leave)(void* state, const StepDirector& director) noexcept = nullptr;
    void (*place)(void* state, void* gradients) noexcept = nullptr;
    void (*place_addend)(void* state, void* addend) noexcept = nullptr;
    void (*reduce)(void* state, SourceLocation where) = nullptr;
    void (*finish)(void* state, SourceLocation where) = nullptr;
    std::size_t (*windows)(const void* state) noexcept = nullptr;

    template <class State>
    static LedGroup of(State& state) noexcept {
        return {&state,
                [](void* s, void* memory, SourceLocation where) { group<State>(s).parameters().hold(memory, where); },
                [](void* s) noexcept { group<State>(s).parameters().let_go(); },
                [](void* s, StepDirector& director, std::size_t number) noexcept {
                    group<State>(s).directed().set(&director, number);
                },
                [](void* s, const StepDirector& director) noexcept {
                    if (group<State>(s).directed().any() != &director) { return; }
                    group<State>(s).directed().set(nullptr, 0);
                    group<State>(s).gradients().place(nullptr);
                    group<State>(s).gradients().place_addend(nullptr);
                },
                [](void* s, void* memory) noexcept { group<State>(s).gradients().place(memory); },
                [](void* s, void* memory) noexcept { group<State>(s).gradients().place_addend(memory); },
                [](void* s, SourceLocation where) { group<State>(s).gradients().reduce_added(where); },
                [](void* s, SourceLocation where) { group<State>(s).gradients().finish(where); },
                [](const void* s) noexcept { return group<State>(const_cast<void*>(s)).parameters().windows(); }};
    }

  private:
    template <class State>
    static State& group(void* state) noexcept {
        return *static_cast<State*>(state);
    }
};

/// Goes through a schedule as the program calls the verbs of its steps: gives the communication between them to the
/// streams, says where leased buffers lie, and refuses a verb that is not the next one.
/// Cost:    no allocation; per operation a comparison, and for those that take a slot two waits for events
template <class Engine>
class StepCursor final : public StepDirector {
  public:
    StepCursor(Context<Engine>& context, std::vector<GroupDescription> groups, std::vector<LedGroup> led,
               const Schedule& schedule, SourceLocation where)
        : StepDirector(Manner::leads),
          context_(context),
          groups_(std::move(groups)),
          led_(std::move(led)),
          program_(schedule, groups_, where),
          given_back_(program_.plan.slots.size()),
          added_(groups_.size()),
          holds_(groups_.size()) {}

    /// From now on the groups' steps are led, in memory that takes the place of their slots.
    /// @pre nobody leads them
    void lead() {
        synchronize();  // nothing of an earlier step uses the slots any more
        Access::pools(context_).drop();
        arena_ = context_.template buffer<std::uint8_t>(program_.plan.arena_bytes);
        std::size_t number = 0;
        for (const LedGroup& group : led_) { group.lead(group.state, *this, number++); }
    }
    /// Nothing is led any more: what the streams still do with the arena is waited for.
    ~StepCursor() {
        if (in_step()) { end_program("a schedule ended while a step that follows it is under way"); }
        synchronize();
        for (const LedGroup& group : led_) { group.leave(group.state, *this); }
    }

    std::size_t operations() const noexcept { return program_.steps.size(); }
    ByteCount arena_bytes() const noexcept { return ByteCount(program_.plan.arena_bytes); }

    void begin_step(std::size_t groups, SourceLocation where) override {
        if (groups != led_.size()) {
            throw_usage_error(where, "a step over ", groups, " groups follows a schedule of ", led_.size());
        }
        for (std::size_t g = 0; g < led_.size(); ++g) {
            if (const std::size_t windows = led_[g].windows(led_[g].state); windows > 0) {
                throw_usage_error(where, "'", groups_[g].path, "': a step that follows a schedule begins while ",
                                  windows, " window(s) are open; reshard them first");
            }
        }
        // Of a step that was given up nobody has said when its buffers were last used.
        if (at_ != 0 && at_ != program_.steps.size()) { synchronize(); }
        at_ = 0;
        failure_ = nullptr;
        added_.assign(added_.size(), 0);
        set_in_step(true);
        try {
            advance(where);
        } catch (...) {
            end_step();
            throw;
        }
    }
    void end_step() noexcept override {
        set_in_step(false);
        for (std::size_t g = 0; g < led_.size(); ++g) {
            if (holds_[g] != 0) { let_go(g); }
        }
    }
    void open(std::size_t /*group*/, SourceLocation /*where*/) override {}

    void before(Act act, std::size_t group, SourceLocation where) override {
        if (failure_) { std::rethrow_exception(failure_); }
        advance(where);
        const Step* const next = at_ < program_.steps.size() ? &program_.steps[at_] : nullptr;
        const bool expected = next != nullptr && next->op.act == act && (act == Act::norm || next->op.group == group);
        if (!expected) { leave(act, group, where); }
        ++at_;
        if (act == Act::zero && next->takes != none) {
            await(next->takes, context_.compute_stream());
            led_[group].place(led_[group].state, memory(next->takes));
        }
        if (act == Act::add) { ++added_[group]; }
    }
    void after(Act /*act*/, std::size_t /*group*/, SourceLocation where) override { advance(where); }
    void finish(std::size_t group, SourceLocation where) override {
        if (failure_) { std::rethrow_exception(failure_); }
        if (added_[group] == program_.microbatches[group]) { return; }
        fail(where, "'", groups_[group].path, "' has its last microbatch after ", added_[group], ", expected ",
             program_.microbatches[group]);
    }
    void closed(std::size_t group) noexcept override {
        if (failure_) { return; }
        try {
            const SourceLocation where = where_;
            advance(where);
            const bool expected = at_ < program_.steps.size() && program_.steps[at_].op.act == Act::close &&
                                  program_.steps[at_].op.group == group;
            if (!expected) { leave(Act::close, group, where); }
            const std::size_t slot = program_.steps[at_].gives_back;
            ++at_;
            if (slot != none) {
                let_go(group);
                given_back_[slot] = context_.compute_stream().record();
            }
            advance(where);
        } catch (...) { failure_ = std::current_exception(); }
    }

  private:
    using Step = StepProgram::Step;
    static constexpr std::size_t none = StepProgram::none;

    /// Gives the communication that is due to its streams.
    void advance(SourceLocation where) {
        where_ = where;
        while (at_ < program_.steps.size() && !is_of_program(program_.steps[at_].op.act)) {
            try {
                issue(program_.steps[at_], where);
            } catch (...) {
                failure_ = std::current_exception();
                throw;
            }
            ++at_;
        }
    }
    void issue(const Step& step, SourceLocation where) {
        const auto stream = context_.communication_stream();
        const std::uint32_t g = step.op.group;
        const LedGroup& group = led_[g];
        if (step.takes != none) { await(step.takes, stream); }
        if (step.op.act == Act::gather) {
            group.hold(group.state, memory(step.takes), where);
            holds_[g] = step.takes != none ? 1 : 0;
            return;
        }
        if (step.op.act == Act::reduce) {
            if (step.takes != none) { group.place_addend(group.state, memory(step.takes)); }
            group.reduce(group.state, where);
            if (step.takes != none) { given_back_[step.takes] = stream.record(); }
            if (step.gives_back != none) { given_back_[step.gives_back] = stream.record(); }
        }
        if (step.finishes) { group.finish(group.state, where); }
    }

    void await(std::size_t slot, const typename Engine::Stream& stream) {
        for (const std::size_t before : program_.plan.slots[slot].after) {
            if (before != none) { stream.wait(given_back_[before]); }
        }
    }
    void* memory(std::size_t slot) const noexcept {
        return slot == none ? nullptr : arena_.data() + program_.plan.slots[slot].offset;
    }
    void let_go(std::size_t group) noexcept {
        holds_[group] = 0;
        led_[group].let_go(led_[group].state);
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
    /// The verb as the program says it.
    static std::string_view verb(Act act) noexcept {
        switch (act) {
            case Act::use:
                return "unshard";
            case Act::close:
                return "reshard";
            case Act::zero:
                return "gradients";
            case Act::norm:
                return "global_norm";
            case Act::update:
                return "step";
            default:
                return name(act);
        }
    }
    [[noreturn]] void leave(Act act, std::size_t group, SourceLocation where) {
        const auto text = [&](Act of, std::size_t g) {
            return of == Act::norm ? std::string(verb(of)) : concat(verb(of), " of '", groups_[g].path, "'");
        };
        if (at_ >= program_.steps.size()) {
            fail(where, text(act, group), " called, expected the end of the step");
        } else {
            const Op& expected = program_.steps[at_].op;
            const bool of_microbatch = expected.act != Act::norm && expected.act != Act::update;
            fail(where, text(act, group), " called, expected ", text(expected.act, expected.group),
                 of_microbatch ? concat(" in microbatch ", expected.microbatch) : std::string());
        }
    }
    void synchronize() noexcept {
        try {
            context_.communication_stream().synchronize();
            context_.compute_stream().synchronize();
        } catch (...) {}  // NOLINT(bugprone-empty-catch): a destructor has nobody to tell
    }

    Context<Engine>& context_;
    std::vector<GroupDescription> groups_;
    std::vector<LedGroup> led_;
    StepProgram program_;
    typename Engine::template Buffer<std::uint8_t> arena_;
    std::vector<typename Engine::Stream::Event> given_back_;  // by slot: its last use
    std::vector<std::uint32_t> added_;                        // microbatches, by group
    std::vector<char> holds_;                                 // a full copy in the arena, by group
    std::size_t at_ = 0;
    SourceLocation where_{};  // of the last verb that said where it was
    std::exception_ptr failure_;
};

}  // namespace shardkit::detail
