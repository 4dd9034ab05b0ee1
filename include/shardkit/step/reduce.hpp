// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <shardkit/comm/agreement.hpp>
#include <shardkit/core/elements.hpp>
#include <shardkit/detail/identity.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/divisor.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/loss_scale_state.hpp>

namespace shardkit::inline SHARDKIT_BUILD {

/// Gradients of a whole model, reduced over every axis: what norms, clipping and optimizers accept.
/// The memory holds sums; one over the divisor and the loss scale is applied by every reader, so no accessor shows an
/// undivided sum. Ends the step when it is consumed or destroyed.
template <class EngineType>
class Reduced {
  public:
    using Engine = EngineType;

    const Groups<Engine>& groups(SourceLocation where = SourceLocation::current()) const {
        if (!scope_.live()) {
            detail::Group<Engine>::refuse_use(where, "reduced gradients used after an optimizer step consumed them");
        }
        return scope_.groups();
    }
    double divisor() const noexcept { return stated_.divisor; }
    /// One over the divisor; the loss scale comes on top where there is one.
    double divisor_scale() const noexcept { return 1 / divisor(); }
    bool has_loss_scale() const noexcept { return loss_scale_ != nullptr; }
    /// Tells these gradients from those of any other step or model of the process.
    std::uint64_t identity() const noexcept { return identity_; }

    /// Copies the whole reduced gradient of a parameter (its type, its name or its number), scaled, to every rank.
    /// Collective over the data ranks; for inspection: it allocates a full buffer.
    /// @throws std::invalid_argument when the size is not the parameter's, or the group has none of that name or
    ///         number; UsageError for a skipped or frozen group, or one of another model
    template <class Layer, class P, class Values>
    void read_full(Layer& layer, const P& parameter, Values&& values,
                   SourceLocation where = SourceLocation::current()) const {
        static_assert(detail::TargetRules<Values>::are_written);
        auto& state = state_of(layer, "read_full", where);
        state.read_full_gradient(layer.number_of(parameter, where), scale(state.context()),
                                 detail::elements_of(values), where);
    }

  private:
    friend detail::Access;
    Reduced(detail::StepScope<Engine> scope, const detail::StatedStep& stated, LossScaleState* loss_scale) noexcept
        : scope_(std::move(scope)), stated_(stated), loss_scale_(loss_scale) {}
    /// What stands behind a layer for `verb`.
    /// @throws UsageError when the gradients were consumed, or the layer is another model's
    template <class Layer>
    auto& state_of(Layer& layer, std::string_view verb, SourceLocation where) const {
        static_cast<void>(groups(where));
        auto& state = detail::Access::state(layer, where);
        state.require_accumulation(scope_.number(), verb, where);
        return state;
    }
    /// In the engine's memory; null without one.
    LossScaleState* loss_scale() const noexcept { return loss_scale_; }
    /// What the sums in memory are multiplied by to be gradients. Waits for the compute stream where there is a loss
    /// scale.
    double scale(Context<Engine>& context) const {
        if (loss_scale_ == nullptr) { return divisor_scale(); }
        const LossScaleState now = context.read(loss_scale_);
        return detail::unscale(divisor_scale(), &now);
    }

    detail::StepScope<Engine> scope_;
    detail::StatedStep stated_;
    LossScaleState* loss_scale_;
    std::uint64_t identity_ = detail::new_identity();
};

}  // namespace shardkit::inline SHARDKIT_BUILD

namespace shardkit {

namespace detail {
template <class X>
struct IsAccumulation : std::false_type {};
template <class Engine>
struct IsAccumulation<Accumulation<Engine>> : std::true_type {};
template <class X>
struct IsReduced : std::false_type {};
template <class Engine>
struct IsReduced<Reduced<Engine>> : std::true_type {};

/// States what `divisor` is for these groups, and the loss scale, beside what they communicate from now on.
/// `assumed`: the program has made the sums, which are stated too.
template <class Engine>
StatedStep state_divisor(const Groups<Engine>& groups, const Divisor& divisor, const LossScaleUse& loss_scale,
                         SourceLocation where, bool assumed = false) {
    auto& context = groups.context(where);
    std::size_t ranks = 1;
    Access::walk(
        groups, [&](Group<Engine>& group) { ranks = group.data_ranks(); }, where);
    StatedStep step{divisor.of(ranks), loss_scale.stated, loss_scale.number, where};
    if (assumed) {
        Access::walk(
            groups, [&](Group<Engine>& group) { group.digest_reduced(step); }, where);
    }
    const StatementHash stated = step.gradients_hash();
    if (StatementBook* const book = book_of(context.world())) { book->note(step); }
    Access::walk(
        groups, [&](Group<Engine>& group) { group.statements().set_gradients(stated); }, where);
    return step;
}

/// Names a model by its first group.
template <class Engine>
ModelName first_group(const Groups<Engine>& groups, SourceLocation where) {
    ModelName model;
    Access::walk(
        groups,
        [&](Group<Engine>& group) {
            if (model.identity == 0) { model = {group.identity(), group.path()}; }
        },
        where);
    return model;
}
template <class Engine>
void bind_loss_scale(LossScale<Engine>& loss_scale, const Groups<Engine>& groups, SourceLocation where) {
    Access::bind(loss_scale, first_group(groups, where), where);
}

template <class Engine>
Reduced<Engine> reduce(Accumulation<Engine>&& accumulation, const Divisor& divisor, const LossScaleUse& loss_scale,
                       SourceLocation where) {
    const StatedStep stated = state_divisor(Access::groups(accumulation, where), divisor, loss_scale, where);
    return Access::make<Reduced<Engine>>(Access::finish(std::move(accumulation), where), stated, loss_scale.state);
}
template <class Engine>
Reduced<Engine> assume_reduced(const Groups<Engine>& groups, const Divisor& divisor, const LossScaleUse& loss_scale,
                               SourceLocation where) {
    StepScope<Engine> scope(groups, 0, where);
    Access::walk(
        groups, [](Group<Engine>& group) { group.step().assume_reduced(); }, where);
    const StatedStep stated = state_divisor(groups, divisor, loss_scale, where, true);
    return Access::make<Reduced<Engine>>(std::move(scope), stated, loss_scale.state);
}
}  // namespace detail

/// Reduces accumulated gradients over the data axes where that is left to do, and consumes them: what the policy
/// leaves after the microbatches (an all-reduce, a reduce-scatter, an all-reduce across replicas, or nothing).
/// `divisor`: sum, mean or divide_by(n), the same number for every policy.
/// Order:   stream-ordered. Collective over the data ranks.
/// Cost:    ranks compare the divisor within the next call that they make anyway: what is left to reduce, the norm,
///          the next window's gather, or the next step's reduction
/// @throws  CommError, there and on every rank, when ranks give different divisors, where the engine compares calls;
///          UsageError when a group got no gradient, a handle is still out, or the accumulation was reduced
template <class X>
[[nodiscard]] auto reduce(X&& accumulation, Divisor divisor, SourceLocation where = SourceLocation::current()) {
    using Given = std::remove_cvref_t<X>;
    constexpr bool not_reduced = !detail::IsReduced<Given>::value;
    static_assert(not_reduced, "reduce: these gradients are already reduced");
    constexpr bool accumulated = !not_reduced || detail::IsAccumulation<Given>::value;
    static_assert(accumulated, "reduce takes an Accumulation; add the gradients of each microbatch first");
    constexpr bool consumed = !std::is_lvalue_reference_v<X>;
    static_assert(!detail::IsAccumulation<Given>::value || consumed,
                  "reduce consumes the accumulation: write reduce(std::move(accumulation), divisor)");
    if constexpr (detail::IsAccumulation<Given>::value && consumed) {
        return detail::reduce(std::forward<X>(accumulation), divisor, {}, where);
    }
}

/// The same for a loss that was multiplied by `loss_scale`: the scale is divided out with the divisor,
/// and the optimizer's step skips on overflow and adapts the scale. `loss_scale` outlives the result.
/// @throws  UsageError when `loss_scale` was used with another model: each would adapt it, and the second divide by
///          what the first has changed
template <class Engine>
[[nodiscard]] Reduced<Engine> reduce(Accumulation<Engine>&& accumulation, Divisor divisor,
                                     LossScale<Engine>& loss_scale,
                                     SourceLocation where = SourceLocation::current()) {
    detail::bind_loss_scale(loss_scale, detail::Access::groups(accumulation, where), where);
    return detail::reduce(std::move(accumulation), divisor, detail::Access::use(loss_scale), where);
}

/// For adopters whose own kernels have already reduced over every data axis: declares the model's gradient
/// memory (see gradient_shard) to hold the reduced sums.
/// No communication. `divisor` says what is still to be divided by; `sum` if nothing is.
/// Cost:    of what every rank holds alike (NoShard's, but what tp splits) up to 1,024 spaced elements of each
///          parameter are read, where the engine's memory is the host's: ranks compare them within the next call that
///          they make anyway, as they do values of initialize and load
/// @throws  CommError there, on every rank, when they differ
template <class Engine>
[[nodiscard]] Reduced<Engine> assume_reduced(const Groups<Engine>& groups, Divisor divisor = sum,
                                             SourceLocation where = SourceLocation::current()) {
    return detail::assume_reduced(groups, divisor, {}, where);
}

/// The same for a loss that was multiplied by `loss_scale`, as in `reduce`: the memory holds sums of scaled
/// gradients.
/// @throws  UsageError when `loss_scale` was used with another model
template <class Engine>
[[nodiscard]] Reduced<Engine> assume_reduced(const Groups<Engine>& groups, Divisor divisor,
                                             LossScale<Engine>& loss_scale,
                                             SourceLocation where = SourceLocation::current()) {
    detail::bind_loss_scale(loss_scale, groups, where);
    return detail::assume_reduced(groups, divisor, detail::Access::use(loss_scale), where);
}

}  // namespace shardkit
