// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <utility>

#include <shardkit/optim/loss_scale_state.hpp>
#include <shardkit/sharded/step_scope.hpp>

namespace shardkit::inline SHARDKIT_BUILD {

/// Gradients of a whole model that owe nothing to any axis: what norms, clipping and optimizers accept.
/// The memory holds sums; one over the divisor and the loss scale is applied by every reader, so no accessor shows an
/// undivided sum. Ends the step when it is consumed or destroyed.
template <class... T>
class [[nodiscard]] Reduced {
  public:
    Reduced(StepScope<T...> scope, double divisor_scale, LossScaleState* loss_scale) noexcept
        : scope_(std::move(scope)), divisor_scale_(divisor_scale), loss_scale_(loss_scale) {}

    const Groups<T...>& groups() const {
        if (!scope_.live()) { throw UsageError("reduced gradients used after an optimizer step consumed them"); }
        return scope_.groups();
    }
    /// One over the divisor; the loss scale comes on top where there is one.
    double divisor_scale() const noexcept { return divisor_scale_; }
    /// In the engine's memory; null without one.
    LossScaleState* loss_scale() const noexcept { return loss_scale_; }

    /// Copies the whole reduced gradient of parameter P, scaled, to every rank. Collective over the data ranks;
    /// for inspection: it allocates a full buffer.
    /// @throws std::invalid_argument when the size is not P's; UsageError for a skipped or frozen group
    template <class Layer, class P, FloatingElement V>
    void read_full(Layer& layer, P, std::span<V> values, SourceLocation where = SourceLocation::current()) const {
        static_assert(Groups<T...>::template contains<Layer>,
                      "Reduced: this Sharded is not one of the model's groups");
        static_assert(Layer::Group::template contains<P>, "Reduced: this parameter is not in the group");
        static_cast<void>(groups());
        auto& state = layer.state();
        double scale = divisor_scale_;
        if (loss_scale_ != nullptr) {
            const LossScaleState now = layer.context().read(loss_scale_);
            scale = unscale(divisor_scale_, &now);
        }
        state.read_full_gradient(Layer::Group::template index<P>, scale, values, where);
    }

  private:
    StepScope<T...> scope_;
    double divisor_scale_;
    LossScaleState* loss_scale_;
};

}  // namespace shardkit::inline SHARDKIT_BUILD
