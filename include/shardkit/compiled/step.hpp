// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <shardkit/compiled/interface.hpp>
#include <shardkit/compiled/model.hpp>
#include <shardkit/core/elements.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/step/divisor.hpp>
#include <shardkit/step/gradients.hpp>

namespace shardkit::detail SHARDKIT_BUILD {
/// Returns the group of a Sharded, or of a GroupRef, without its types.
template <class Layer>
GroupRef ref_of(const Layer& layer, SourceLocation where) {
    if constexpr (std::is_same_v<Layer, GroupRef>) {
        return layer;
    } else {
        return Access::state(layer, where).ref();
    }
}
}  // namespace SHARDKIT_BUILD

namespace shardkit SHARDKIT_BUILD {

/// The gradients of one step over a whole model, from the first microbatch to `reduce` or the optimizer's step: see
/// step/accumulation.hpp.
class Accumulation {
  public:
    template <std::integral Count = std::size_t>
    [[nodiscard]] explicit Accumulation(const Model& model, Count count = 1,
                                        SourceLocation where = SourceLocation::current())
        : step_(compiled::begin(model, count_of(count, where), where)) {}
    [[nodiscard]] Accumulation(const Model& model, UntilReduced, SourceLocation where = SourceLocation::current())
        : step_(compiled::begin(model, 0, where)) {}
    template <class G, class P, class R>
    explicit Accumulation(Sharded<G, P, R>& layer,
                          auto&&...) requires(detail::NeedsModel<Sharded<G, P, R>>::is_model);

    template <std::integral Count>
    void set_microbatches(Count count, SourceLocation where = SourceLocation::current()) {
        core(where).set_microbatches(count_of(count, where), where);
    }
    template <class Layer, std::integral Count>
    void set_microbatches(Layer& layer, Count count, SourceLocation where = SourceLocation::current()) {
        core(where).set_microbatches(detail::ref_of(layer, where), count_of(count, where), where);
    }
    template <class Layer>
    [[nodiscard]] auto gradients(Layer& layer, SourceLocation where = SourceLocation::current()) {
        auto& state = detail::Access::state(layer, where);
        state.core().take_gradients(core(where), where);
        return detail::Access::make<typename Layer::Gradients>(state, where);
    }
    template <class State, class AxisSet>
    void add(Gradients<State, Partial<AxisSet>>&& handle, SourceLocation where = SourceLocation::current()) {
        compiled::Accumulation& step = core(where);
        State* const state = detail::Access::release(handle);
        if (state == nullptr) {
            State::refuse_use(where, "Accumulation::add: this gradient handle was already added");
        }
        state->core().add_gradients(step, where);
    }
    template <class Handle>
    void add(Handle& /*handle*/, SourceLocation /*where*/ = SourceLocation::current()) {
        constexpr bool consumed = sizeof(Handle) == 0;
        static_assert(consumed, "add consumes the gradients: write add(std::move(gradients))");
    }
    template <class Layer>
    void add_zero(Layer& layer, SourceLocation where = SourceLocation::current()) {
        core(where).add_zero(detail::ref_of(layer, where), where);
    }
    template <class Layer>
    void skip(Layer& layer, SourceLocation where = SourceLocation::current()) {
        core(where).skip(detail::ref_of(layer, where), where);
    }

    /// @throws UsageError when it was moved from
    compiled::Accumulation& core(SourceLocation where) const {
        if (step_.get() == nullptr) [[unlikely]] {
            compiled::refuse_use(where, "reduce: this accumulation was already reduced");
        }
        return *step_;
    }

  private:
    template <std::integral Count>
    static std::size_t count_of(Count count, SourceLocation where) {
        if (!std::in_range<std::size_t>(count) || count == 0) {
            throw_invalid_argument(where, "Accumulation: ", count,
                                   " microbatches given, expected at least 1, or until_reduced");
        }
        return static_cast<std::size_t>(count);
    }

    compiled::Handle<compiled::Accumulation> step_;
};

/// A factor that protects fp16 gradients from underflow: see step/loss_scale.hpp.
class LossScale {
  public:
    explicit LossScale(Rank& rank, LossScaleOptions options = {}, SourceLocation where = SourceLocation::current())
        : scale_(compiled::make_loss_scale(rank, options, where)) {}

    double value() const { return scale_->state().value(); }
    std::uint32_t clean_steps() const { return scale_->state().clean_steps(); }
    bool skipped() const { return scale_->state().last() == FoundInf::yes; }
    std::uint64_t skipped_steps() const { return scale_->state().skipped_steps(); }
    const LossScaleState* data() const noexcept { return scale_->data(); }

    compiled::LossScale& core() const noexcept { return *scale_; }

  private:
    compiled::Handle<compiled::LossScale> scale_;
};

/// The gradients of a whole model, reduced over all axes: see step/reduce.hpp.
class Reduced {
  public:
    explicit Reduced(compiled::Reduced* made) noexcept : reduced_(made) {}

    double divisor() const { return core({}).divisor(); }
    double divisor_scale() const { return 1 / divisor(); }
    bool has_loss_scale() const { return core({}).has_loss_scale(); }
    std::uint64_t identity() const { return core({}).identity(); }
    template <class Layer, class P, class Values>
    void read_full(Layer& layer, const P& parameter, Values&& values,
                   SourceLocation where = SourceLocation::current()) const {
        static_assert(detail::TargetRules<Values>::are_written);
        auto& group = detail::Access::state(layer, where).core();
        const auto to = detail::elements_of(values);
        using T = typename decltype(to)::value_type;
        if constexpr (std::is_same_v<T, double>) {
            group.read_full_gradient(core(where), layer.number_of(parameter, where), to, where);
        } else {
            std::vector<double> exact(to.size());
            group.read_full_gradient(core(where), layer.number_of(parameter, where), exact, where);
            for (std::size_t i = 0; i < exact.size(); ++i) { to[i] = detail::to_element<T>(exact[i]); }
        }
    }

    /// @throws UsageError when it was consumed or moved from
    compiled::Reduced& core(SourceLocation where) const {
        if (reduced_.get() == nullptr) [[unlikely]] {
            compiled::refuse_use(where, "reduced gradients used after an optimizer step consumed them");
        }
        return *reduced_;
    }

  private:
    compiled::Handle<compiled::Reduced> reduced_;
};

}  // namespace SHARDKIT_BUILD

namespace shardkit SHARDKIT_BUILD {

/// Reduces accumulated gradients over the data axes, and consumes them: see step/reduce.hpp.
template <class X>
[[nodiscard]] auto reduce(X&& accumulation, Divisor divisor, SourceLocation where = SourceLocation::current()) {
    if constexpr (detail::reduces<X>()) { return Reduced(accumulation.core(where).reduce(divisor, nullptr, where)); }
}
[[nodiscard]] inline Reduced reduce(Accumulation&& accumulation, Divisor divisor, LossScale& loss_scale,
                                    SourceLocation where = SourceLocation::current()) {
    return Reduced(accumulation.core(where).reduce(divisor, &loss_scale.core(), where));
}
[[nodiscard]] inline Reduced assume_reduced(const Model& groups, Divisor divisor = sum,
                                            SourceLocation where = SourceLocation::current()) {
    return Reduced(compiled::assume_reduced(groups, divisor, nullptr, where));
}
[[nodiscard]] inline Reduced assume_reduced(const Model& groups, Divisor divisor, LossScale& loss_scale,
                                            SourceLocation where = SourceLocation::current()) {
    return Reduced(compiled::assume_reduced(groups, divisor, &loss_scale.core(), where));
}

/// sqrt of the sum of squares over every distinct trainable element of every group: see optim/norm.hpp.
template <class X>
auto global_norm(const X& reduced, NormKind kind, SourceLocation where = SourceLocation::current()) {
    constexpr bool is_reduced = std::is_same_v<X, Reduced>;
    static_assert(is_reduced,
                  "global_norm takes reduced gradients: call reduce(std::move(accumulation), divisor) first");
    if constexpr (is_reduced) { return reduced.core(where).global_norm(kind, where); }
}
template <class X>
auto global_norm(const X& reduced, SourceLocation where = SourceLocation::current()) {
    return global_norm(reduced, NormKind::two, where);
}

}  // namespace SHARDKIT_BUILD
