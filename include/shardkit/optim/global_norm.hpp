// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/optim/begin_norm.hpp>
#include <shardkit/optim/finish_norm.hpp>
#include <shardkit/optim/norm_partial.hpp>
#include <shardkit/optim/norm_slots.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/group_state.hpp>
#include <shardkit/step/reduce.hpp>

namespace shardkit {

namespace detail {
/// Where a rank's totals of global norms lie: two doubles each in the engine's memory, which take turns.
template <class Engine>
class NormSlots {
  public:
    explicit NormSlots(Context<Engine>& context) : memory_(context.template buffer<double>(2 * norm_slots)) {}

    double* take() noexcept { return memory_.data() + 2 * (taken_++ % norm_slots); }
    std::uint64_t taken() const noexcept { return taken_; }

  private:
    typename Engine::template Buffer<double> memory_;
    std::uint64_t taken_ = 0;
};
}  // namespace detail

/// The 2-norm of a model's reduced gradients, the same number on every rank: a scalar in the engine's memory, which a
/// clip coefficient refers to and `value` reads. It stays there while fewer than norm_slots later ones are
/// taken.
template <class Engine>
class GlobalNorm {
  public:
    /// Of a rank's next slot; FinishNorm writes it.
    explicit GlobalNorm(Context<Engine>& context)
        : context_(&context),
          slots_(&context.template kept<detail::NormSlots<Engine>>()),
          total_(slots_->take()),
          taken_(slots_->taken()) {}

    /// The norm; waits for the compute stream, on an asynchronous engine the only synchronisation. As in PyTorch
    /// infinite after an infinite element and NaN after a NaN.
    /// @throws UsageError when so many norms were taken since that this one's memory was used again
    double value() const { return std::sqrt(read().sum_of_squares); }
    /// Whether any gradient element of any rank is infinite or NaN; waits likewise.
    FoundInf found_inf() const { return shardkit::found_inf(read()); }

    /// Sum of squares and non-finite count in the engine's memory, for kernels in the compute stream's order.
    /// @throws UsageError as value
    double* data() const {
        if (slots_->taken() - taken_ >= norm_slots) {
            throw UsageError(detail::concat("GlobalNorm: ", slots_->taken() - taken_,
                                            " more norms were taken before this one was used, expected fewer than ",
                                            norm_slots));
        }
        return total_;
    }

  private:
    NormPartial read() const {
        double total[2];
        Engine::Kernels::copy_out(context_->compute_stream(), std::span<const double>(data(), 2),
                                  std::span<double>(total));
        return {total[0], total[1]};
    }

    Context<Engine>* context_;
    detail::NormSlots<Engine>* slots_;
    double* total_;
    std::uint64_t taken_;
};

namespace detail {

/// Adds this rank's share of one group: what it counts of its own (virtual) shard.
template <class Engine, class Precision>
void add_norm_partial(GroupState<Engine, Precision>& state, const double* scale, std::span<double> partials) {
    if (!state.trainable() || state.step().skipped()) { return; }
    state.gradients().wait();
    using Reduction = typename Precision::Reduction;
    Engine::Kernels::norm_partial(
        state.context().compute_stream(), std::span<const Reduction>(state.gradients().reduced()),
        std::span<const IndexRange>(state.counted_segments()), scale, &partials[2 * state.geometry().shard_index]);
}

template <class... T>
auto global_norm(const Reduced<T...>& reduced, SourceLocation where) {
    std::size_t shards = 1;
    reduced.groups().for_each([&](auto& layer) { shards = std::max(shards, layer.state().geometry().shards); });
    // One scratch and one world for the model: taken from whichever group comes first.
    auto& context = reduced.groups().context();
    using Engine = EngineOf<decltype(context)>;
    const std::span<double> scratch = context.step_scratch(1 + 2 * shards);
    const std::span<double> partials = scratch.subspan(1);
    const auto compute = context.compute_stream();
    const auto communication = context.communication_stream();
    Engine::Kernels::run(compute, BeginNorm{reduced.divisor_scale(), reduced.loss_scale(), scratch.data(), partials});
    reduced.groups().for_each([&](auto& each) { add_norm_partial(each.state(), scratch.data(), partials); });
    communication.wait(compute.record());
    all_reduce_in_place(context.world(), ReduceOp::sum, partials, communication, where);
    compute.wait(communication.record());
    GlobalNorm<Engine> norm(context);
    Engine::Kernels::run(compute, FinishNorm{std::span<const double>(partials), norm.data()});
    return norm;
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
