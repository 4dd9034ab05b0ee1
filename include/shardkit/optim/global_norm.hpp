// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <type_traits>

#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/optim/found_inf.hpp>
#include <shardkit/optim/norm_partial.hpp>
#include <shardkit/sharded/reduce.hpp>

namespace shardkit {

/// The 2-norm of a model's reduced gradients, the same number on every rank.
class GlobalNorm {
  public:
    explicit GlobalNorm(const NormPartial& total) noexcept : total_(total) {}

    /// The norm; on an asynchronous engine the only synchronisation. As in PyTorch infinite after an infinite
    /// element and NaN after a NaN.
    double value() const noexcept { return std::sqrt(total_.sum_of_squares); }
    /// Whether any gradient element of any rank is infinite or NaN.
    FoundInf found_inf() const noexcept { return shardkit::found_inf(total_); }

  private:
    NormPartial total_;
};

namespace detail {

/// Adds this rank's share of one group: its own (virtual) shard, on the one replica that counts it.
template <class Layer>
void add_norm_partial(Layer& layer, double scale, std::span<double> partials) {
    auto& state = layer.state();
    if (!layer.trainable() || state.step().skipped() || state.replica() != 0) { return; }
    state.gradients().wait();
    const auto reduced = state.gradients().reduced();
    const std::size_t origin = state.gradients().reduced_range().begin;
    NormPartial partial;
    for (const Segment& segment : state.own_segments()) {
        using Reduction = typename Layer::Precision::Reduction;
        Layer::Engine::Kernels::norm_partial(
            layer.context().compute_stream(),
            std::span<const Reduction>(reduced.subspan(segment.flat.begin - origin, segment.flat.size())), scale,
            partial);
    }
    partials[2 * state.geometry().shard_index] += partial.sum_of_squares;
    partials[2 * state.geometry().shard_index + 1] += partial.nonfinite;
}

template <class... T>
GlobalNorm global_norm(const Reduced<T...>& reduced, SourceLocation where) {
    std::size_t shards = 1;
    reduced.groups().for_each([&](auto& layer) { shards = std::max(shards, layer.state().geometry().shards); });
    NormPartial total;
    bool first = true;
    reduced.groups().for_each([&](auto& layer) {
        // One scratch and one world for the model: taken from whichever group comes first.
        if (!std::exchange(first, false)) { return; }
        auto& context = layer.context();
        const std::span<double> partials = context.norm_scratch(2 * shards);
        std::fill(partials.begin(), partials.end(), 0.0);
        reduced.groups().for_each([&](auto& each) { add_norm_partial(each, reduced.scale(), partials); });
        all_reduce_in_place(context.world(), ReduceOp::sum, partials, context.compute_stream(), where);
        context.compute_stream().synchronize();
        for (std::size_t shard = 0; shard < shards; ++shard) {
            total.sum_of_squares += partials[2 * shard];
            total.nonfinite += partials[2 * shard + 1];
        }
    });
    return GlobalNorm(total);
}

}  // namespace detail

/// sqrt of the sum of squares over every distinct trainable element of every group, after divisor and loss
/// scale. Each rank sums its own (virtual) shard, so all policies add the same partial sums in the same order
/// and agree bitwise with one microbatch, cp = 1 and no replication.
/// Order:   collective over the world: one all-reduce of two doubles per shard.
/// Source:  torch.nn.utils.clip_grad_norm_; partial sums in the reduction type within blocks of 4096, double
///          across them
template <class X>
auto global_norm(const X& reduced, SourceLocation where = SourceLocation::current()) {
    constexpr bool is_reduced = detail::IsReduced<X>::value;
    static_assert(is_reduced,
                  "global_norm takes reduced gradients: call reduce(std::move(accumulation), divisor) first");
    if constexpr (is_reduced) { return detail::global_norm(reduced, where); }
}

}  // namespace shardkit
