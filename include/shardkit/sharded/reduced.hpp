// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include <shardkit/comm/all_gather.hpp>
#include <shardkit/optim/loss_scale.hpp>
#include <shardkit/sharded/step_scope.hpp>

namespace shardkit::inline SHARDKIT_BUILD {

/// Gradients of a whole model that owe nothing to any axis: what norms, clipping and optimizers accept.
/// The memory holds sums; `scale` (one over the divisor and the loss scale) is applied by every reader, so no
/// accessor shows an undivided sum. Ends the step when it is consumed or destroyed.
template <class... T>
class [[nodiscard]] Reduced {
  public:
    Reduced(StepScope<T...> scope, double scale, LossScale* loss_scale) noexcept
        : scope_(std::move(scope)), scale_(scale), loss_scale_(loss_scale) {}

    const Groups<T...>& groups() const {
        if (!scope_.live()) { throw UsageError("reduced gradients used after an optimizer step consumed them"); }
        return scope_.groups();
    }
    double scale() const noexcept { return scale_; }
    LossScale* loss_scale() const noexcept { return loss_scale_; }

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
        if (!layer.trainable() || state.step().skipped()) {
            throw UsageError(detail::concat("'", layer.path(), "': read_full of a group without gradients"));
        }
        const IndexRange range = layer.layout().range(Layer::Group::template index<P>);
        if (values.size() != range.size()) {
            throw_invalid_argument(where, "'", layer.path(), "': read_full with ", values.size(),
                                   " elements, expected ", range.size());
        }
        using Reduction = typename Layer::Precision::Reduction;
        const auto stream = layer.context().communication_stream();
        std::span<const Reduction> full = state.gradients().reduced();
        typename Layer::Engine::template Buffer<Reduction> gathered;
        if (full.size() != layer.layout().buffer_numel()) {
            gathered = typename Layer::Engine::template Buffer<Reduction>(layer.layout().buffer_numel());
            all_gather(state.shard_communicator(), full, gathered.span(), stream, where);
            full = gathered.span();
        }
        stream.synchronize();
        for (std::size_t i = 0; i < range.size(); ++i) {
            const auto undivided = static_cast<double>(static_cast<Arithmetic<Reduction>>(full[range.begin + i]));
            values[i] = static_cast<V>(static_cast<Arithmetic<V>>(undivided * scale_));
        }
    }

  private:
    StepScope<T...> scope_;
    double scale_;
    LossScale* loss_scale_;
};

}  // namespace shardkit::inline SHARDKIT_BUILD
