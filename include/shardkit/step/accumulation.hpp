// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <shardkit/step/gradients.hpp>
#include <shardkit/step/groups.hpp>

namespace shardkit {

/// Whether more microbatches of this step will add gradients to a group. `last` lets its reduction start.
enum class Microbatch : std::uint8_t { more, last };

}  // namespace shardkit

namespace shardkit::detail::inline SHARDKIT_BUILD {

/// One training step's hold on the groups of a model: while it lives no second one can start; its end makes
/// them idle again, whether the step was completed or abandoned by an exception. Move-only.
template <class... T>
class StepScope {
  public:
    /// @throws UsageError when one of the groups is in another step; none is touched then
    StepScope(const Groups<T...>& groups, SourceLocation where) : groups_(groups) {
        static_cast<void>(groups.context(where));
        StepDirector* const director = director_of(groups, where);
        std::size_t begun = 0;
        try {
            groups_->for_each_state([&](auto& state) {
                state.begin_step(where);
                ++begun;
            });
            if (director != nullptr) [[unlikely]] { director->begin_step(begun, where); }
        } catch (...) {
            groups_->for_each_state([&](auto& state) {
                if (begun > 0) {
                    state.step().end();
                    --begun;
                }
            });
            throw;
        }
    }
    StepScope(StepScope&& other) noexcept : groups_(std::exchange(other.groups_, std::nullopt)) {}
    StepScope& operator=(StepScope&& other) noexcept {
        StepScope taken(std::move(other));
        std::swap(groups_, taken.groups_);
        return *this;
    }
    ~StepScope() {
        if (groups_) {
            // Asked for here and not kept: a recorder ends when record returns, whether the step has ended or not.
            StepDirector* director = nullptr;
            groups_->for_each([&](auto& layer) {
                if (Access::moved_from(layer)) { return; }
                Access::state(layer).step().end();
                director = Access::state(layer).directed().director();
            });
            if (director != nullptr) [[unlikely]] { director->end_step(); }
        }
    }

    bool live() const noexcept { return groups_.has_value(); }
    const Groups<T...>& groups() const { return *groups_; }

  private:
    /// Who is told of the step; null: nobody.
    static StepDirector* director_of(const Groups<T...>& groups, SourceLocation where) {
        StepDirector* first = nullptr;
        std::size_t number = 0;
        groups.for_each_state([&](auto& state) {
            StepDirector* const its = state.directed().any();
            if (number++ == 0) { first = its; }
            if (its != first) {
                state.refuse_group(
                    where, "a schedule is followed, or a step recorded, for some of these groups and not for all");
            }
        });
        return first;
    }

    std::optional<Groups<T...>> groups_;
};

}  // namespace shardkit::detail::inline SHARDKIT_BUILD

namespace shardkit::inline SHARDKIT_BUILD {

/// The gradients of one step over a whole model, from the first microbatch to `reduce`. Because it spans the
/// model, no group can be forgotten in the norm or the update: a group that got no gradient is an error unless
/// `add_zero` or `skip` says that it is meant.
/// Order:   `add` runs the policy's reductions, so every data rank adds the same groups in the same order.
template <class... T>
class Accumulation {
  public:
    /// @throws UsageError when another accumulation over one of the groups has not ended
    [[nodiscard]] explicit Accumulation(const Groups<T...>& groups, SourceLocation where = SourceLocation::current())
        : scope_(groups, where) {}

    /// A gradient handle of one microbatch for `layer`; the backward pass adds to its zeroed (or, where the
    /// policy adds unreduced gradients, running) values.
    /// @throws UsageError when the last handle was not added, or the layer is frozen or finished
    template <class Layer>
    [[nodiscard]] auto gradients(Layer& layer, SourceLocation where = SourceLocation::current()) {
        constexpr bool known = Groups<T...>::template contains<Layer>;
        static_assert(known, "Accumulation::gradients: this Sharded is not one of the accumulation's groups");
        if constexpr (known) {
            auto& state = detail::Access::state(layer, where);
            state.take_gradients(where, "gradients");
            return detail::Access::make<Gradients<typename Layer::State, Partial<DataAxes>>>(state, where);
        }
    }

    /// Takes a microbatch's gradients in and reduces them where the policy does so every microbatch; with
    /// Microbatch::last the rest of the group's reduction runs too. Collective over the data ranks.
    /// @throws UsageError when the handle was added before; CommError when the engine fails
    template <class State, class AxisSet>
    void add(Gradients<State, Partial<AxisSet>>&& handle, Microbatch microbatch = Microbatch::more,
             SourceLocation where = SourceLocation::current()) {
        State* const state = detail::Access::release(handle);
        if (state == nullptr) {
            State::refuse_use(where, "Accumulation::add: this gradient handle was already added");
        }
        state->add_gradients(where, "add");
        if (microbatch == Microbatch::last) { state->finish_gradients(where, "add"); }
    }

    /// A microbatch in which this rank did not use `layer`: adds zeros, so that the collective still runs.
    template <class Layer>
    void add_zero(Layer& layer, Microbatch microbatch = Microbatch::more,
                  SourceLocation where = SourceLocation::current()) {
        static_assert(Groups<T...>::template contains<Layer>,
                      "Accumulation::add_zero: this Sharded is not one of the accumulation's groups");
        auto& state = detail::Access::state(layer, where);
        state.take_gradients(where, "add_zero");
        state.add_gradients(where, "add_zero");
        if (microbatch == Microbatch::last) { state.finish_gradients(where, "add_zero"); }
    }

    /// `layer` has no gradient in this step on any rank: no collective, and the optimizer leaves its
    /// parameters, states and step count alone (as PyTorch does for a gradient of None).
    template <class Layer>
    void skip(Layer& layer, SourceLocation where = SourceLocation::current()) {
        static_assert(Groups<T...>::template contains<Layer>,
                      "Accumulation::skip: this Sharded is not one of the accumulation's groups");
        auto& state = detail::Access::state(layer);
        state.skip_step(where);
    }

  private:
    friend detail::Access;
    const Groups<T...>& groups(SourceLocation where) const {
        if (!scope_.live()) {
            detail::FirstState<T...>::refuse_use(where, "reduce: this accumulation was already reduced");
        }
        return scope_.groups();
    }
    /// Runs what is left and gives the step away.
    detail::StepScope<T...> finish(SourceLocation where) && {
        groups(where).for_each_state([&](auto& state) {
            if (state.trainable() && state.step().accumulating()) { state.finish_gradients(where, "reduce"); }
        });
        return std::move(scope_);
    }

    detail::StepScope<T...> scope_;
};

}  // namespace shardkit::inline SHARDKIT_BUILD
