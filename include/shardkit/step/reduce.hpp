// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include <shardkit/comm/stated_step.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/elements.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/argument_types.hpp>
#include <shardkit/step/divisor.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/loss_scale_state.hpp>
#include <shardkit/step/step_scope.hpp>

namespace shardkit::detail SHARDKIT_FACE {
class OptimizerFrame;
}

namespace shardkit SHARDKIT_FACE {

/// The gradients of a whole model, reduced over all axes: what norms, clipping and optimizers accept. The memory
/// holds sums. Every reader applies one over the divisor and the loss scale, so that no accessor shows an undivided
/// sum. The step ends when this object is consumed or destroyed.
class Reduced {
  public:
    const Model& groups(SourceLocation where = SourceLocation::current()) const;
    double divisor() const noexcept { return stated_.divisor; }
    /// Returns one over the divisor; a loss scale is applied in addition.
    double divisor_scale() const noexcept { return 1 / divisor(); }
    bool has_loss_scale() const noexcept { return loss_scale_ != nullptr; }
    /// Returns a number that the gradients of no other step or model of the process have.
    std::uint64_t identity() const noexcept { return identity_; }

    /// Copies the whole reduced gradient of a parameter, given by type, name or number, to every rank, scaled.
    /// Collective over the data ranks. It allocates a full buffer, so it is for inspection.
    /// @throws std::invalid_argument when the size is not the parameter's, or the group has no such parameter;
    ///         UsageError for a skipped or frozen group, or one of another model
    template <class Layer, class P, class Values>
    void read_full(Layer& layer, const P& parameter, Values&& values,
                   SourceLocation where = SourceLocation::current()) const {
        static_assert(detail::TargetRules<Values>::are_written);
        detail::Group& group = spi::group(layer, where);
        require(group, "read_full", where);
        detail::read_full_gradient(group, layer.number_of(parameter, where), scale(layer.rank(where)),
                                   detail::TensorValueTarget::of(detail::elements_of(values)), where);
    }
    /// Returns the factor that turns the sums in memory into gradients. Waits for the compute stream where there is a
    /// loss scale.
    double scale(Rank& rank) const {
        if (loss_scale_ == nullptr) { return divisor_scale(); }
        const LossScaleState now = rank.read(loss_scale_);
        return detail::unscale(divisor_scale(), &now);
    }
    /// Returns the loss scale in the engine's memory; null without one.
    const LossScaleState* loss_scale() const noexcept { return loss_scale_; }
    /// Returns what ranks state of the gradients, for who communicates them.
    const detail::StatedStep& stated() const noexcept { return stated_; }
    /// Checks for `verb` that a group is one of the model's.
    /// @throws UsageError when the gradients were consumed, or the group is another model's
    void require(const detail::Group& group, std::string_view verb, SourceLocation where) const;

    /// What `reduce` and `assume_reduced` return. Null `loss_scale`: none.
    static Reduced of(Accumulation&& accumulation, const Divisor& divisor, LossScale* loss_scale,
                      SourceLocation where);
    static Reduced of(const Model& groups, const Divisor& divisor, LossScale* loss_scale, SourceLocation where);

  private:
    friend detail::OptimizerFrame;
    Reduced(detail::StepScope scope, const detail::StatedStep& stated, LossScaleState* loss_scale) noexcept;
    static detail::LossScaleUse use_of(LossScale* loss_scale, const Model& groups, SourceLocation where);

    detail::StepScope scope_;
    detail::StatedStep stated_;
    LossScaleState* loss_scale_;
    std::uint64_t identity_;
};

/// Reduces accumulated gradients over the data axes, and consumes them. It makes what the policy leaves after the
/// microbatches: an all-reduce, a reduce-scatter, an all-reduce across replicas, or nothing.
/// `divisor` is sum, mean or divide_by(n), the same number for every policy.
/// Order:   stream-ordered. Collective over the data ranks.
/// Cost:    ranks compare the divisor within the next call that they make anyway: the remaining reduction, the norm,
///          the next window's gather, or the next step's reduction
/// @throws  CommError in that call, on every rank, when ranks give different divisors and the engine compares calls;
///          UsageError when a group got no gradient, a handle is still out, or the accumulation was reduced
template <class X>
[[nodiscard]] auto reduce(X&& accumulation, Divisor divisor, SourceLocation where = SourceLocation::current()) {
    if constexpr (detail::reduces<X>()) {
        return Reduced::of(std::forward<X>(accumulation), divisor, nullptr, where);
    }
}

/// Reduces the gradients of a loss that was multiplied by `loss_scale`. The scale is divided out with the divisor,
/// and the optimizer's step skips on overflow and adapts the scale. `loss_scale` must outlive the result.
/// @throws  UsageError when `loss_scale` was used with another model: the steps of both would adapt it
[[nodiscard]] inline Reduced reduce(Accumulation&& accumulation, Divisor divisor, LossScale& loss_scale,
                                    SourceLocation where = SourceLocation::current()) {
    return Reduced::of(std::move(accumulation), divisor, &loss_scale, where);
}

/// Declares that the model's gradient memory (see gradient_shard) holds the reduced sums, for programs whose own
/// kernels have reduced them over every data axis. Nothing is communicated. `divisor` is what is still to be divided
/// by; `sum` if nothing is.
/// Cost:    where every rank holds the same sums (NoShard, except what tp splits) and the engine's memory is the
///          host's, up to 1,024 spaced elements of each parameter are read: ranks compare them within the next call
///          that they make anyway, as they do values of initialize and load
/// @throws  CommError in that call, on every rank, when they differ
[[nodiscard]] inline Reduced assume_reduced(const Model& groups, Divisor divisor = sum,
                                            SourceLocation where = SourceLocation::current()) {
    return Reduced::of(groups, divisor, nullptr, where);
}

/// Declares reduced sums of scaled gradients, for a loss that was multiplied by `loss_scale`, as in `reduce`.
/// @throws  UsageError when `loss_scale` was used with another model
[[nodiscard]] inline Reduced assume_reduced(const Model& groups, Divisor divisor, LossScale& loss_scale,
                                            SourceLocation where = SourceLocation::current()) {
    return Reduced::of(groups, divisor, &loss_scale, where);
}

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/step/reduce_members.hpp>
#endif
