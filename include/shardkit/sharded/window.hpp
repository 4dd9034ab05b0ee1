// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>

// clang's typestate attributes: with -Wconsumed, the use of a window after its end is a compile-time warning. A
// window that is passed by reference has an unknown state and may be used. Other compilers would warn about the
// attributes, so the macros are empty there.
#ifdef __clang__
#define SHARDKIT_CONSUMABLE [[clang::consumable(unconsumed)]]
#define SHARDKIT_RETURNS_UNCONSUMED [[clang::return_typestate(unconsumed)]]
#define SHARDKIT_CALLABLE_WHEN_UNCONSUMED [[clang::callable_when("unconsumed", "unknown")]]
#else
#define SHARDKIT_CONSUMABLE
#define SHARDKIT_RETURNS_UNCONSUMED
#define SHARDKIT_CALLABLE_WHEN_UNCONSUMED
#endif

namespace shardkit {

/// Whether a window may communicate.
enum class Gathers : std::uint8_t {
    when_stale,  ///< the window gathers where the full copy is stale
    never        ///< a window that would have to gather is refused
};

}  // namespace shardkit

namespace shardkit SHARDKIT_BUILD {

template <class State>
class PendingWindow;

/// A view of the full parameters, readable while it is open. It ends by `reshard(std::move(window))` or at the end of
/// its scope. Both are local work: no collective runs in a destructor. Several windows of one group may be open at
/// once.
template <class State>
class SHARDKIT_CONSUMABLE Window {
  public:
    Window(Window&& other) noexcept : state_(std::exchange(other.state_, nullptr)), opened_(other.opened_) {}
    Window& operator=(Window&& other) noexcept {
        Window taken(std::move(other));  // ends the window that this object held
        std::swap(state_, taken.state_);
        std::swap(opened_, taken.opened_);
        return *this;
    }
    ~Window() {
        if (state_ != nullptr) { state_->close_window(); }
    }

    /// Returns a view of the whole parameter P, in the gathered type; a CodedView where codes are gathered.
    /// @throws UsageError after the window's end
    template <class P>
    SHARDKIT_CALLABLE_WHEN_UNCONSUMED auto operator[](P) const& {
        constexpr bool in_group = State::Group::template contains<P>;
        static_assert(in_group, "Window: this parameter is not in the group");
        if constexpr (in_group) {
            if (state_ == nullptr) { State::refuse_use(opened_, "window used after its end; it was opened here"); }
            return whole(State::Group::template index<P>);
        }
    }
    /// Rejects a temporary window: it ends with the expression, and its parameters with it.
    template <class P>
    SHARDKIT_CALLABLE_WHEN_UNCONSUMED auto operator[](P parameter) const&& {
        constexpr bool kept = !std::is_same_v<P, P>;
        static_assert(kept,
                      "Window: this one ends before its parameters are used; keep it: const auto w = "
                      "layer.unshard();");
        return (*this)[parameter];
    }
    /// Returns a view of the whole parameter with that name or number.
    /// @throws UsageError after the window's end; std::invalid_argument when the group has no such parameter
    template <class NameOrNumber>
    SHARDKIT_CALLABLE_WHEN_UNCONSUMED auto view(const NameOrNumber& parameter,
                                                SourceLocation where = SourceLocation::current()) const& {
        if (state_ == nullptr) { State::refuse_use(where, "window used after its end"); }
        return whole(state_->number_of(parameter, where));
    }
    template <class NameOrNumber>
    void view(const NameOrNumber&, SourceLocation = SourceLocation::current()) const&& = delete;
    bool open() const noexcept { return state_ != nullptr; }
    bool belongs_to(const State& state) const noexcept { return state_ == &state; }

  private:
    friend PendingWindow<State>;
    SHARDKIT_RETURNS_UNCONSUMED Window(State& open_state, SourceLocation opened) noexcept
        : state_(&open_state), opened_(opened) {}
    auto whole(std::size_t parameter) const { return state_->show(parameter, opened_); }

    State* state_;
    SourceLocation opened_;
};

/// A window whose gather is running. `wait()` returns the window; destroying this object ends it.
template <class State>
class PendingWindow {
  public:
    /// Of a group whose gather has begun.
    PendingWindow(State& open_state, SourceLocation opened) noexcept
        : window_(open_state, opened), state_(&open_state) {}
    PendingWindow(PendingWindow&&) noexcept = default;
    PendingWindow& operator=(PendingWindow&& other) noexcept {
        PendingWindow taken(std::move(other));
        std::swap(window_, taken.window_);
        std::swap(state_, taken.state_);
        return *this;
    }
    ~PendingWindow() {
        // The compute stream releases the buffer, while the gather that still writes it runs in another stream.
        if (window_.open()) { state_->drop_full(); }
    }

    /// Returns the window.
    /// Order: later work on the compute stream sees the full parameters; the host does not wait.
    [[nodiscard]] Window<State> wait() && {
        state_->use_window(window_.opened_);
        return std::move(window_);
    }

  private:
    Window<State> window_;
    State* state_;
};

}  // namespace shardkit SHARDKIT_BUILD
