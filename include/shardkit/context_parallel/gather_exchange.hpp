// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/comm/all_gather.hpp>
#include <shardkit/comm/reduce_scatter.hpp>
#include <shardkit/mesh/engine_table.hpp>

namespace shardkit::cp {

/// Shows every rank's block of keys and values to every rank of cp by gathering all of them first: one collective, no
/// overlap, and memory for every rank's block. The simple alternative to RingExchange, for short sequences.
/// Memory:  size blocks, and size + 1 more from the first backward pass on.
/// Cost:    forward one all-gather; backward one more and a reduce-scatter.
template <class Engine, class A>
class GatherExchange {
  public:
    /// `block`: elements of one.
    GatherExchange(Context<Engine>& context, const typename Engine::Communicator& cp, std::size_t block)
        : context_(context), cp_(cp), block_(block), blocks_(Table::zeroed(context, block * cp.size())) {}

    /// As RingExchange::each, in the order of the ranks.
    template <class Use>
    void each(std::span<const A> own, const Use& use, SourceLocation where = SourceLocation::current()) {
        all_gather(cp_, own, blocks_.span(), context_.compute_stream(), where);
        for (std::size_t source = 0; source < cp_.size(); ++source) {
            use(source, std::span<const A>(blocks_.span().subspan(source * block_, block_)));
        }
    }

    /// As RingExchange::each_with_gradients.
    template <class Use>
    void each_with_gradients(std::span<const A> own, std::span<A> d_own, const Use& use,
                             SourceLocation where = SourceLocation::current()) {
        using Kernels = typename Engine::Kernels;
        const auto compute = context_.compute_stream();
        if (addends_.size() == 0) {
            addends_ = Table::zeroed(context_, block_ * cp_.size());
            sum_ = Table::zeroed(context_, block_);
        }
        Kernels::fill(compute, addends_.span(), A{0});
        each(
            own,
            [&](std::size_t source, std::span<const A> block) {
                use(source, block, addends_.span().subspan(source * block_, block_));
            },
            where);
        reduce_scatter(cp_, ReduceOp::sum, std::span<const A>(addends_.span()), sum_.span(), compute, where);
        Kernels::accumulate(compute, std::span<const A>(sum_.span()), d_own);
    }

  private:
    using Table = EngineTable<Engine, A>;

    Context<Engine>& context_;
    typename Engine::Communicator cp_;
    std::size_t block_;
    Table blocks_;
    Table addends_;
    Table sum_;
};

}  // namespace shardkit::cp
