// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/context_parallel/attention_shape.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/spi/launches.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/reduce_scatter.hpp>

namespace shardkit::cp SHARDKIT_BUILD {

/// Gives every rank's block of keys and values to every rank of cp by gathering all of them first: one collective, no
/// overlap, and memory for every rank's block. The simple alternative to RingExchange, for short sequences.
/// Memory:  size blocks, and size + 1 more from the first backward pass on.
/// Cost:    forward one all-gather; backward one more and a reduce-scatter.
template <class A>
class GatherExchange {
    using Sum = Arithmetic<A>;

  public:
    /// Returns the bytes in an engine's memory, after a backward pass, of an exchange of blocks of `block` elements
    /// over `size` ranks.
    static constexpr std::size_t bytes(std::size_t block, std::size_t size,
                                       const engine::Traits& engine = {}) noexcept {
        return engine.buffer_bytes(size * block * sizeof(A), true) +
               engine.buffer_bytes(size * block * sizeof(Sum), true) + engine.buffer_bytes(block * sizeof(Sum), true);
    }

    /// Allocates the memory of an exchange. `block` is the largest number of elements in a block.
    GatherExchange(Rank& rank, const Communicator& cp, std::size_t block)
        : rank_(rank), cp_(cp), block_(block), blocks_(Table<A>::zeroed(rank, block * cp.size())) {}

    /// Calls `use` like RingExchange::each, in the order of the ranks.
    template <class Use>
    void each(std::span<const A> own, const Use& use, SourceLocation where = SourceLocation::current()) {
        detail::check_block("GatherExchange", own.size(), block_, where);
        const std::span<A> blocks = blocks_.span().first(cp_.size() * own.size());
        all_gather(cp_, own, blocks, rank_.compute_stream(), where);
        for (std::size_t source = 0; source < cp_.size(); ++source) {
            use(source, std::span<const A>(blocks.subspan(source * own.size(), own.size())));
        }
    }

    /// Calls `use` like RingExchange::each_with_gradients.
    template <class Use>
    void each_with_gradients(std::span<const A> own, std::span<Sum> d_own, const Use& use,
                             SourceLocation where = SourceLocation::current()) {
        using Kernels = host::AnyKernels;
        const auto compute = rank_.compute_stream();
        detail::check_block("GatherExchange", own.size(), block_, where);
        if (addends_.size() == 0) {
            addends_ = Table<Sum>::zeroed(rank_, block_ * cp_.size());
            sum_ = Table<Sum>::zeroed(rank_, block_);
        }
        const std::span<Sum> addends = addends_.span().first(cp_.size() * own.size());
        const std::span<Sum> sum = sum_.span().first(own.size());
        Kernels::fill(compute, addends, Sum{0});
        each(
            own,
            [&](std::size_t source, std::span<const A> block) {
                use(source, block, addends.subspan(source * own.size(), own.size()));
            },
            where);
        reduce_scatter(cp_, ReduceOp::sum, std::span<const Sum>(addends), sum, compute, where);
        Kernels::accumulate(compute, std::span<const Sum>(sum), d_own);
    }

  private:
    template <class T>
    using Table = detail::EngineTable<T>;

    Rank& rank_;
    Communicator cp_;
    std::size_t block_;
    Table<A> blocks_;
    Table<Sum> addends_;
    Table<Sum> sum_;
};

}  // namespace shardkit::cp SHARDKIT_BUILD
