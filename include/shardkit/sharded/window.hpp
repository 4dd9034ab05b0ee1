// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/consumable.hpp>

namespace shardkit::inline SHARDKIT_BUILD {

/// Full parameters, readable while the window is open. Ends by `reshard(std::move(window))` or by leaving
/// scope; both are local work, no collective runs in a destructor. Several windows of one group may be open.
template <class State>
class SHARDKIT_CONSUMABLE [[nodiscard]] Window {
  public:
    SHARDKIT_RETURNS_UNCONSUMED explicit Window(State& open_state) noexcept : state_(&open_state) {}
    Window(Window&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
    Window& operator=(Window&& other) noexcept {
        Window taken(std::move(other));  // ends what this one held, now and not with `other`
        std::swap(state_, taken.state_);
        return *this;
    }
    ~Window() {
        if (state_ != nullptr) { state_->parameters().close(); }
    }

    /// The whole parameter P, in the gathered type.
    /// @throws UsageError after the window's end
    template <class P>
    SHARDKIT_CALLABLE_WHEN_UNCONSUMED auto operator[](P) const {
        constexpr bool in_group = State::Group::template contains<P>;
        static_assert(in_group, "Window: this parameter is not in the group");
        if constexpr (in_group) {
            if (state_ == nullptr) { throw UsageError("window used after its end"); }
            return whole(State::Group::template index<P>);
        }
    }
    /// The whole parameter of that name or number.
    /// @throws UsageError after the window's end; std::invalid_argument when the group has no such parameter
    template <class NameOrNumber>
    SHARDKIT_CALLABLE_WHEN_UNCONSUMED auto view(const NameOrNumber& parameter,
                                                SourceLocation where = SourceLocation::current()) const {
        if (state_ == nullptr) { throw UsageError("window used after its end"); }
        return whole(state_->geometry().number_of(parameter, where));
    }
    bool open() const noexcept { return state_ != nullptr; }
    bool belongs_to(const State& state) const noexcept { return state_ == &state; }

  private:
    auto whole(std::size_t parameter) const {
        return state_->view(parameter, state_->parameters().full().data(), state_->parameters().generation());
    }

    State* state_;
};

/// A window whose gather is under way: `wait()` gives the window. Dropping it ends it.
template <class State>
class [[nodiscard]] PendingWindow {
  public:
    explicit PendingWindow(State& open_state) noexcept : window_(open_state), state_(&open_state) {}
    PendingWindow(PendingWindow&&) noexcept = default;
    PendingWindow& operator=(PendingWindow&& other) noexcept {
        PendingWindow taken(std::move(other));
        std::swap(window_, taken.window_);
        std::swap(state_, taken.state_);
        return *this;
    }
    ~PendingWindow() {
        // The buffer is given back on the compute stream, and the gather that still writes it runs elsewhere.
        if (window_.open()) { state_->parameters().wait(); }
    }

    /// Order: later work on the compute stream sees the full parameters; the host does not wait.
    Window<State> wait() && {
        state_->parameters().wait();
        return std::move(window_);
    }

  private:
    Window<State> window_;
    State* state_;
};

}  // namespace shardkit::inline SHARDKIT_BUILD
