// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include <shardkit/detail/access.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/sharded/sharded_state.hpp>

namespace shardkit {

/// A value that is still an addend over these axes: the debt that `reduce` pays.
template <class AxisSet>
struct Partial {
    using owed = AxisSet;
};

inline namespace SHARDKIT_BUILD {

/// Full-size gradients of one microbatch on one rank, for the backward pass to add to. Their type says over
/// which axes they are still partial, so they fit neither an optimizer nor a norm; hand them back with
/// `accumulation.add(std::move(gradients))`.
template <class State, class Placement>
class Gradients {
  public:
    using owed = typename Placement::owed;

    Gradients(Gradients&& other) noexcept : state_(std::exchange(other.state_, nullptr)), taken_(other.taken_) {}
    Gradients& operator=(Gradients&& other) noexcept {
        Gradients ending(std::move(other));  // ends what this one held, now and not with `other`
        std::swap(state_, ending.state_);
        std::swap(taken_, ending.taken_);
        return *this;
    }
    ~Gradients() {
        if (state_ != nullptr) { state_->drop_gradients(); }
    }

    /// The whole gradient of parameter P, in the gradient type; the backward pass adds to it.
    /// @throws UsageError after the handle was added
    template <class P>
    auto operator[](P) const {
        constexpr bool in_group = State::Group::template contains<P>;
        static_assert(in_group, "Gradients: this parameter is not in the group");
        if constexpr (in_group) {
            if (state_ == nullptr) {
                State::refuse_use(taken_, "gradient handle used after it was added; it was taken here");
            }
            return whole(State::Group::template index<P>);
        }
    }
    /// The whole gradient of the parameter of that name or number.
    /// @throws UsageError after the handle was added; std::invalid_argument when the group has no such parameter
    template <class NameOrNumber>
    auto view(const NameOrNumber& parameter, SourceLocation where = SourceLocation::current()) const {
        if (state_ == nullptr) { State::refuse_use(where, "gradient handle used after it was added"); }
        return whole(state_->geometry().number_of(parameter, where));
    }

  private:
    friend detail::Access;
    Gradients(State& state, SourceLocation taken) noexcept : state_(&state), taken_(taken) {}
    State* release() noexcept { return std::exchange(state_, nullptr); }
    auto whole(std::size_t parameter) const {
        return state_->view(parameter, state_->gradients().full().data(), state_->gradient_generation(), taken_);
    }

    State* state_;
    SourceLocation taken_;
};

}  // namespace SHARDKIT_BUILD

}  // namespace shardkit
