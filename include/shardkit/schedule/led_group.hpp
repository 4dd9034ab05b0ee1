// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/end_program.hpp>
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
    void (*await_reduced)(void* state) = nullptr;
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
                    State& its = group<State>(s);
                    if (its.directed().any() != &director) { return; }
                    if (its.parameters().shows_held() || (its.step().busy() && its.gradients().placed())) {
                        end_program("a schedule ended while a window or gradients of '", its.path(),
                                    "' of a step that followed it live on, in its memory");
                    }
                    its.directed().set(nullptr, 0);
                    its.gradients().place(nullptr);
                    its.gradients().place_addend(nullptr);
                },
                [](void* s, void* memory) noexcept { group<State>(s).gradients().place(memory); },
                [](void* s, void* memory) noexcept { group<State>(s).gradients().place_addend(memory); },
                [](void* s, SourceLocation where) { group<State>(s).gradients().reduce_added(where); },
                [](void* s, SourceLocation where) { group<State>(s).gradients().finish(where); },
                [](void* s) { group<State>(s).gradients().wait(); },
                [](const void* s) noexcept { return group<State>(const_cast<void*>(s)).parameters().windows(); }};
    }

  private:
    template <class State>
    static State& group(void* state) noexcept {
        return *static_cast<State*>(state);
    }
};

}  // namespace shardkit::detail
