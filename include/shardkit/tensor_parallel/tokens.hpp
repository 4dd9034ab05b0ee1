// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/reduce_scatter.hpp>

namespace shardkit::tp {

/// How activations are distributed over tp outside of the layers that are split over it. With sequence parallelism,
/// each rank computes and keeps norms, dropout and residuals for a part of the tokens; a layer moves the same bytes
/// either way.
/// Source: Korthikanti et al., arXiv 2205.05198
enum class SequenceParallel : std::uint8_t {
    off,  ///< all tokens on every rank
    on    ///< tokens [rank * n, (rank + 1) * n) on each rank
};

/// Returns the values of all tokens for a layer that is split over tp: the input of a column-parallel layer in the
/// forward pass, the gradient at the output of a row-parallel layer in the backward pass. Without sequence
/// parallelism every rank has them already.
/// Shapes:  part [tokens, width], or with sequence parallelism [tokens / tp, width]; gathered [tokens, width], which
///          may be empty without it.
/// Order:   stream-ordered; an all-gather over `tp` with sequence parallelism, otherwise nothing.
/// @return  `gathered`, or `part` itself without sequence parallelism
/// @throws  std::invalid_argument when the sizes disagree; CommError when the engine fails
template <Element T>
std::span<const T> gather_tokens(const Communicator& tp, SequenceParallel sequence_parallel, std::span<const T> part,
                                 std::span<T> gathered, const Stream& stream,
                                 SourceLocation where = SourceLocation::current()) {
    if (sequence_parallel == SequenceParallel::off) { return part; }
    all_gather(tp, part, gathered, stream, where);
    return gathered;
}

/// Sums the contributions of the parts of a layer that is split over tp: the output of a row-parallel layer in the
/// forward pass (its bias is added afterwards, once), the gradient at the input of a column-parallel layer in the
/// backward pass.
/// Shapes:  partial [tokens, width]; sum [tokens / tp, width], which may be empty without sequence parallelism.
/// Order:   stream-ordered; an all-reduce of `partial` in place, or a reduce-scatter with sequence parallelism.
/// @return  `sum`, or `partial` itself without sequence parallelism
/// @throws  std::invalid_argument when the sizes disagree; CommError when the engine fails
template <Element T>
std::span<T> sum_tokens(const Communicator& tp, SequenceParallel sequence_parallel, std::span<T> partial,
                        std::span<T> sum, const Stream& stream, SourceLocation where = SourceLocation::current()) {
    if (sequence_parallel == SequenceParallel::off) {
        all_reduce_in_place(tp, ReduceOp::sum, partial, stream, where);
        return partial;
    }
    reduce_scatter(tp, ReduceOp::sum, std::span<const T>(partial), sum, stream, where);
    return sum;
}

}  // namespace shardkit::tp
