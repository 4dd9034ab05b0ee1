// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::nccl::detail {

/// Combines the ranks' values element by element: a maximum or minimum in rank order, or a tree_sum, in
/// Arithmetic<Out> and rounded once. Rank q's `count` elements begin at gathered + q * count. A NaN of any rank is
/// kept, which NCCL's own maxima and minima drop (they use fmaxf and fminf). Each index computes one element, for
/// Kernels::for_each_index.
template <class In, class Out>
struct Combined {
    using A = Arithmetic<Out>;

    ReduceOp op;
    const In* gathered;
    std::size_t ranks;
    std::size_t count;
    Out* output;

    constexpr void operator()(std::uint64_t i) const {
        output[i] = static_cast<Out>(op == ReduceOp::tree_sum ? tree_sum(i) : extreme(i));
    }

  private:
    constexpr A value(std::size_t rank, std::uint64_t i) const {
        return static_cast<A>(static_cast<Arithmetic<In>>(gathered[rank * count + i]));
    }
    constexpr A extreme(std::uint64_t i) const {
        A result = value(0, i);
        for (std::size_t q = 1; q < ranks; ++q) {
            const A next = value(q, i);
            const bool wins = op == ReduceOp::max ? result < next : next < result;
            if (wins || next != next) { result = next; }
        }
        return result;
    }
    /// Adds in registers up to 8 ranks, and then the sums of 8, as the digits of a binary counter.
    /// @pre there are several ranks
    constexpr A tree_sum(std::uint64_t i) const {
        if (ranks == 2) { return subtree<2>(0, i); }
        if (ranks == 4) { return subtree<4>(0, i); }
        A finished[33] = {};
        std::size_t depth = 0;
        for (std::size_t q = 0; q < ranks; q += 8) {
            finished[depth++] = subtree<8>(q, i);
            for (std::size_t subtrees = q / 8; subtrees % 2 == 1; subtrees /= 2) {
                --depth;
                finished[depth - 1] += finished[depth];
            }
        }
        return finished[0];
    }
    template <std::size_t Ranks>
    constexpr A subtree(std::size_t first, std::uint64_t i) const {
        if constexpr (Ranks == 1) {
            return value(first, i);
        } else {
            return subtree<Ranks / 2>(first, i) + subtree<Ranks / 2>(first + Ranks / 2, i);
        }
    }
};

}  // namespace shardkit::nccl::detail
