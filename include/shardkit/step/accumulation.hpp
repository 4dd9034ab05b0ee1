// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <utility>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/dynamic.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/step/argument_types.hpp>
#include <shardkit/step/gradients.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/step_scope.hpp>

namespace shardkit SHARDKIT_FACE {

class Optimizer;

/// The gradients of one step over a whole model, from the first microbatch to `reduce` or the optimizer's step. It
/// covers all groups of the model, so that the norm and the update cannot miss one: a group without a gradient is an
/// error unless `add_zero` or `skip` marks it.
///     Accumulation accumulation{model, microbatches};
/// It knows which microbatch is the last one, so that a group's reduction overlaps with the rest of that backward
/// pass.
/// Order:   `add` runs the policy's reductions, so every data rank must add the same groups in the same order.
class Accumulation {
  public:
    /// `count` is the number of microbatches: how often each group is added before its gradients are complete.
    /// @throws std::invalid_argument for no microbatches; UsageError when another accumulation over one of the groups
    ///         has not ended
    template <std::integral Count = std::size_t>
    [[nodiscard]] explicit Accumulation(const Model& model, Count count = 1,
                                        SourceLocation where = SourceLocation::current())
        : scope_(model, count_of(count, where), where) {}
    /// Begins a step whose number of microbatches is not known yet: `set_microbatches` sets it later, or `reduce`
    /// ends them. Until it is set, reductions that a policy makes once per step cannot overlap with the backward
    /// pass.
    [[nodiscard]] Accumulation(const Model& model, UntilReduced, SourceLocation where = SourceLocation::current())
        : scope_(model, 0, where) {}
    /// Rejects a layer in the place of a model, with an error that says what to write instead.
    template <class G, class P, class R>
    explicit Accumulation(Sharded<G, P, R>& layer,
                          auto&&...) requires(detail::NeedsModel<Sharded<G, P, R>>::is_model);

    /// Sets the number of microbatches of the step once it is known. Groups that have all of them are reduced here,
    /// in the model's order.
    /// Order:   collective over the data ranks of these groups
    /// @throws  std::invalid_argument for 0; UsageError when a group was already added more often
    template <std::integral Count>
    void set_microbatches(Count count, SourceLocation where = SourceLocation::current()) {
        set_all(count_of(count, where), where);
    }
    /// Sets the number of microbatches of one group: for a layer that is added more than once per microbatch, or not
    /// in each.
    template <class Layer, std::integral Count>
    void set_microbatches(Layer& layer, Count count, SourceLocation where = SourceLocation::current()) {
        set_of(spi::group(layer, where), count_of(count, where), where);
    }

    /// Hands out the gradients of one microbatch of `layer`, for the backward pass to add to. They start at zero, or
    /// at the running sum where the policy accumulates unreduced gradients; those of an OverwrittenGradient are not
    /// zeroed.
    /// @throws UsageError when the layer's last handle was not added, or the layer is frozen, complete or not the
    /// model's
    template <class Layer>
    [[nodiscard]] auto gradients(Layer& layer, SourceLocation where = SourceLocation::current()) {
        detail::Group& group = layer.live(where);
        take(group, where);
        return typename Layer::Gradients(group, where);
    }

    /// Adds the gradients of one microbatch, and reduces them where the policy does so every microbatch. The last
    /// microbatch also starts the rest of the group's reduction. Collective over the data ranks.
    /// @throws UsageError when the handle was added before; CommError when the engine fails
    template <class G, class R, class AxisSet>
    void add(Gradients<G, R, Partial<AxisSet>>&& handle, SourceLocation where = SourceLocation::current()) {
        detail::Group* const group = handle.group_.release();
        if (group == nullptr) {
            detail::refuse_use(where, "Accumulation::add: this gradient handle was already added");
        }
        add_taken(*group, where);
    }
    template <class Handle>
    void add(Handle& /*handle*/, SourceLocation /*where*/ = SourceLocation::current()) {
        constexpr bool consumed = sizeof(Handle) == 0;
        static_assert(consumed, "add consumes the gradients: write add(std::move(gradients))");
    }

    /// Adds zeros for a microbatch in which this rank did not use `layer`, so that all ranks still join the
    /// collective.
    template <class Layer>
    void add_zero(Layer& layer, SourceLocation where = SourceLocation::current()) {
        add_zeros(spi::group(layer, where), where);
    }

    /// Marks `layer` as having no gradient in this step on any rank. No collective runs, and the optimizer leaves its
    /// parameters, states and step count unchanged (as PyTorch does for a gradient of None).
    template <class Layer>
    void skip(Layer& layer, SourceLocation where = SourceLocation::current()) {
        skip_step(spi::group(layer, where), where);
    }

    /// The groups of the model.
    /// @throws UsageError when it was reduced
    const Model& groups(SourceLocation where = SourceLocation::current()) const;

  private:
    friend Optimizer;
    friend Reduced;

    template <std::integral Count>
    static std::size_t count_of(Count count, SourceLocation where) {
        if (!std::in_range<std::size_t>(count) || count == 0) {
            throw_invalid_argument(where, "Accumulation: ", count,
                                   " microbatches given, expected at least 1, or until_reduced");
        }
        return static_cast<std::size_t>(count);
    }
    void set_all(std::size_t count, SourceLocation where);
    void set_of(detail::Group& group, std::size_t count, SourceLocation where);
    void take(detail::Group& group, SourceLocation where);
    void add_taken(detail::Group& group, SourceLocation where);
    void add_zeros(detail::Group& group, SourceLocation where);
    void skip_step(detail::Group& group, SourceLocation where);
    /// Makes the remaining reductions and hands the step over.
    detail::StepScope finish(SourceLocation where) &&;

    detail::StepScope scope_;
    detail::BackwardStep backward_;  // ends before the step does
};

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/step/accumulation_members.hpp>
#endif
