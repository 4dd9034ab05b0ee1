// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <shardkit/sharded/gradients.hpp>
#include <shardkit/sharded/microbatch.hpp>
#include <shardkit/sharded/step_scope.hpp>

namespace shardkit::inline SHARDKIT_BUILD {

/// The gradients of one step over a whole model, from the first microbatch to `reduce`. Because it spans the
/// model, no group can be forgotten in the norm or the update: a group that got no gradient is an error unless
/// `add_zero` or `skip` says that it is meant.
/// Order:   `add` runs the policy's reductions, so every data rank adds the same groups in the same order.
template <class... T>
class [[nodiscard]] Accumulation {
  public:
    /// @throws UsageError when another accumulation over one of the groups has not ended
    explicit Accumulation(const Groups<T...>& groups, SourceLocation where = SourceLocation::current())
        : scope_(groups, where) {}

    /// A gradient handle of one microbatch for `layer`; the backward pass adds to its zeroed (or, where the
    /// policy adds unreduced gradients, running) values.
    /// @throws UsageError when the last handle was not added, or the layer is frozen or finished
    template <class Layer>
    auto gradients(Layer& layer) {
        constexpr bool known = Groups<T...>::template contains<Layer>;
        static_assert(known, "Accumulation::gradients: this Sharded is not one of the accumulation's groups");
        if constexpr (known) {
            auto& state = layer.state();
            require_trainable(layer);
            state.step().hand_out(layer.path());
            try {
                state.gradients().open();
            } catch (...) {
                state.step().take_back();
                throw;
            }
            return Gradients<typename Layer::State, Partial<DataAxes>>(state);
        }
    }

    /// Takes a microbatch's gradients in and reduces them where the policy does so every microbatch; with
    /// Microbatch::last the rest of the group's reduction runs too. Collective over the data ranks.
    /// @throws UsageError when the handle was added before; CommError when the engine fails
    template <class State, class AxisSet>
    void add(Gradients<State, Partial<AxisSet>>&& handle, Microbatch microbatch = Microbatch::more,
             SourceLocation where = SourceLocation::current()) {
        State* const state = handle.release();
        if (state == nullptr) { throw UsageError("Accumulation::add: this gradient handle was already added"); }
        state->add_gradients(where);
        if (microbatch == Microbatch::last) { state->finish_gradients(where); }
    }

    /// A microbatch in which this rank did not use `layer`: adds zeros, so that the collective still runs.
    template <class Layer>
    void add_zero(Layer& layer, Microbatch microbatch = Microbatch::more,
                  SourceLocation where = SourceLocation::current()) {
        add(gradients(layer), microbatch, where);
    }

    /// `layer` has no gradient in this step on any rank: no collective, and the optimizer leaves its
    /// parameters, states and step count alone (as PyTorch does for a gradient of None).
    template <class Layer>
    void skip(Layer& layer) {
        static_assert(Groups<T...>::template contains<Layer>,
                      "Accumulation::skip: this Sharded is not one of the accumulation's groups");
        layer.state().step().skip(layer.path(), layer.state().gradients().microbatches());
    }

    /// For reduce: runs what is left and gives the step away.
    StepScope<T...> finish(SourceLocation where) && {
        if (!scope_.live()) { throw UsageError("reduce: this accumulation was already reduced"); }
        scope_.groups().for_each([&](auto& layer) {
            if (layer.trainable() && layer.state().step().accumulating()) { layer.state().finish_gradients(where); }
        });
        return std::move(scope_);
    }

  private:
    template <class Layer>
    static void require_trainable(Layer& layer) {
        if (!layer.trainable()) {
            throw UsageError(
                detail::concat("'", layer.path(), "': gradients() of a group whose parameters are all frozen"));
        }
    }

    StepScope<T...> scope_;
};

}  // namespace shardkit::inline SHARDKIT_BUILD
