// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::nccl::detail {

/// Takes the maximum or minimum of the ranks' values, element by element in rank order; rank q's `count` elements
/// begin at gathered + q * count. A NaN of any rank is kept, which NCCL's own maxima and minima drop (they use fmaxf
/// and fminf). Each index computes one element, for Kernels::for_each_index.
template <class In, class Out>
struct Extreme {
    ReduceOp op;
    const In* gathered;
    std::size_t ranks;
    std::size_t count;
    Out* output;

    constexpr void operator()(std::uint64_t i) const {
        using A = Arithmetic<Out>;
        A result = static_cast<A>(static_cast<Arithmetic<In>>(gathered[i]));
        for (std::size_t q = 1; q < ranks; ++q) {
            const A next = static_cast<A>(static_cast<Arithmetic<In>>(gathered[q * count + i]));
            const bool wins = op == ReduceOp::max ? result < next : next < result;
            if (wins || next != next) { result = next; }
        }
        output[i] = static_cast<Out>(result);
    }
};

}  // namespace shardkit::nccl::detail
