// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include <shardkit/comm/agreement.hpp>
#include <shardkit/core/elements.hpp>
#include <shardkit/detail/identity.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/divisor.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/loss_scale_state.hpp>

namespace shardkit SHARDKIT_BUILD {

/// The gradients of a whole model, reduced over all axes: what norms, clipping and optimizers accept. The memory
/// holds sums. Every reader applies one over the divisor and the loss scale, so that no accessor shows an undivided
/// sum. The step ends when this object is consumed or destroyed.
class Reduced {
  public:
    const Model& groups(SourceLocation where = SourceLocation::current()) const {
        if (!scope_.live()) {
            detail::Group::refuse_use(where, "reduced gradients used after an optimizer step consumed them");
        }
        return scope_.groups();
    }
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
        auto& state = state_of(layer, "read_full", where);
        state.read_full_gradient(layer.number_of(parameter, where), scale(state.rank()), detail::elements_of(values),
                                 where);
    }

  private:
    friend detail::Access;
    Reduced(detail::StepScope scope, const detail::StatedStep& stated, LossScaleState* loss_scale) noexcept
        : scope_(std::move(scope)), stated_(stated), loss_scale_(loss_scale) {}
    /// Returns the state of a layer for `verb`.
    /// @throws UsageError when the gradients were consumed, or the layer is another model's
    template <class Layer>
    auto& state_of(Layer& layer, std::string_view verb, SourceLocation where) const {
        static_cast<void>(groups(where));
        auto& state = detail::Access::state(layer, where);
        state.require_accumulation(scope_.number(), verb, where);
        return state;
    }
    /// Returns the loss scale in the engine's memory; null without one.
    LossScaleState* loss_scale() const noexcept { return loss_scale_; }
    /// Returns the factor that turns the sums in memory into gradients. Waits for the compute stream where there is a
    /// loss scale.
    double scale(Rank& rank) const {
        if (loss_scale_ == nullptr) { return divisor_scale(); }
        const LossScaleState now = rank.read(loss_scale_);
        return detail::unscale(divisor_scale(), &now);
    }

    detail::StepScope scope_;
    detail::StatedStep stated_;
    LossScaleState* loss_scale_;
    std::uint64_t identity_ = detail::new_identity();
};

}  // namespace shardkit SHARDKIT_BUILD

namespace shardkit {

namespace detail {
/// Returns the number by which a model's sums of gradients are divided.
inline double divisor_of(const Model& groups, const Divisor& divisor, SourceLocation where) {
    std::size_t averaged = 1;
    for (const Group& group : Access::each(groups, where)) {
        averaged = group.averaged();
        if (group.trainable()) { break; }
    }
    return divisor.of(averaged);
}

/// Adds the divisor and the loss scale to what ranks compare in later collectives of these groups. `assumed` means
/// that the program made the sums itself, which are then compared too.
inline StatedStep state_divisor(const Model& groups, const Divisor& divisor, const LossScaleUse& loss_scale,
                                SourceLocation where, bool assumed = false) {
    auto& rank = detail::rank_of(groups, where);
    StatedStep step{divisor_of(groups, divisor, where), loss_scale.stated, loss_scale.number, where};
    step.other_divisor = divisor.other();
    if (assumed) {
        for (Group& group : Access::each(groups, where)) { group.digest_reduced(step); }
    }
    const StatementHash stated = step.gradients_hash();
    if (StatementBook* const book = book_of(rank.world())) { book->note(step); }
    for (Group& group : Access::each(groups, where)) { group.statements().set_gradients(stated); }
    return step;
}

/// Gives a LossScale to a model, which its first group identifies.
inline void bind_loss_scale(LossScale& loss_scale, const Model& groups, SourceLocation where) {
    if (groups.size() == 0) { return; }
    const Group& first = *Access::each(groups, where);
    Access::bind(loss_scale, ModelName{first.identity(), first.path(), &first.rank()}, where);
}

inline Reduced reduce(Accumulation&& accumulation, const Divisor& divisor, const LossScaleUse& loss_scale,
                      SourceLocation where) {
    if (Access::backward(accumulation).get() != nullptr) {
        Group::refuse_use(where,
                          "reduce: the groups of this accumulation are updated in its backward pass, which "
                          "releases their gradients; expected optimizer.step(std::move(accumulation))");
    }
    const StatedStep stated = state_divisor(Access::groups(accumulation, where), divisor, loss_scale, where);
    return Access::make<Reduced>(Access::finish(std::move(accumulation), where), stated, loss_scale.state);
}
inline Reduced assume_reduced(const Model& groups, const Divisor& divisor, const LossScaleUse& loss_scale,
                              SourceLocation where) {
    StepScope scope(groups, 0, where);
    for (Group& group : Access::each(groups, where)) {
        group.step().require_release(group.path(), "assume_reduced", where);
        group.step().assume_reduced();
    }
    const StatedStep stated = state_divisor(groups, divisor, loss_scale, where, true);
    return Access::make<Reduced>(std::move(scope), stated, loss_scale.state);
}
}  // namespace detail

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
    if constexpr (detail::reduces<X>()) { return detail::reduce(std::forward<X>(accumulation), divisor, {}, where); }
}

/// Reduces the gradients of a loss that was multiplied by `loss_scale`. The scale is divided out with the divisor,
/// and the optimizer's step skips on overflow and adapts the scale. `loss_scale` must outlive the result.
/// @throws  UsageError when `loss_scale` was used with another model: the steps of both would adapt it
[[nodiscard]] inline Reduced reduce(Accumulation&& accumulation, Divisor divisor, LossScale& loss_scale,
                                    SourceLocation where = SourceLocation::current()) {
    detail::bind_loss_scale(loss_scale, detail::Access::groups(accumulation, where), where);
    return detail::reduce(std::move(accumulation), divisor, detail::Access::use(loss_scale), where);
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
    return detail::assume_reduced(groups, divisor, {}, where);
}

/// Declares reduced sums of scaled gradients, for a loss that was multiplied by `loss_scale`, as in `reduce`.
/// @throws  UsageError when `loss_scale` was used with another model
[[nodiscard]] inline Reduced assume_reduced(const Model& groups, Divisor divisor, LossScale& loss_scale,
                                            SourceLocation where = SourceLocation::current()) {
    detail::bind_loss_scale(loss_scale, groups, where);
    return detail::assume_reduced(groups, divisor, detail::Access::use(loss_scale), where);
}

}  // namespace shardkit
