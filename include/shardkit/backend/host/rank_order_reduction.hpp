// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <shardkit/backend/host/convert_block.hpp>
#include <shardkit/backend/host/for_each_index.hpp>
#include <shardkit/backend/host/stream_elements.hpp>
#include <shardkit/backend/host/sum_lanes.hpp>
#include <shardkit/backend/host/sum_tiles.hpp>
#include <shardkit/backend/host/summands.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::host::detail {

/// Elements at a time: few enough that accumulator and rounded block stay in the first-level cache.
inline constexpr std::size_t reduction_block = 1024;

template <class A>
constexpr A add(A a, A b) noexcept {
    using Summand = typename SummandOf<A>::type;
    return static_cast<A>(static_cast<Summand>(a) + static_cast<Summand>(b));
}

/// A NaN of any rank stays, so that a maximum cannot hide a broken gradient.
template <class A>
constexpr A larger(A a, A b) noexcept {
    return a < b || b != b ? b : a;
}
template <class A>
constexpr A smaller(A a, A b) noexcept {
    return b < a || b != b ? b : a;
}

/// sums[i] = two(sums[i], next[i])
template <class A, class In, class Two>
void combine_block(A* sums, const In* next, std::size_t count, Two two) noexcept {
    if constexpr (needs_lanes<In, A>) {
        A widened[reduction_block];
        widen_block(next, widened, count);
        for_each_index(count, [&](std::size_t i) { sums[i] = two(sums[i], widened[i]); });
    } else {
        for_each_index(count, [&](std::size_t i) {
            sums[i] = two(sums[i], static_cast<A>(static_cast<Arithmetic<In>>(next[i])));
        });
    }
}

/// Elements [begin, end) of reduce_in_rank_order(), a block that stays in the first-level cache after the other.
template <class In, class Out, class InputOf, class ResultOf>
void reduce_blocks(ReduceOp op, std::size_t ranks, std::size_t begin, std::size_t end, InputOf input_of,
                   std::size_t results, ResultOf result_of) noexcept {
    using A = Arithmetic<Out>;
    constexpr std::size_t block = reduction_block;
    A sums[block];
    [[maybe_unused]] Out rounded[std::is_same_v<A, Out> ? 1 : block];
    for (std::size_t offset = begin; offset < end; offset += block) {
        const std::size_t size = std::min(block, end - offset);
        widen_block(input_of(std::size_t{0}) + offset, sums, size);
        for (std::size_t q = 1; q < ranks; ++q) {
            const In* const next = input_of(q) + offset;
            switch (op) {
                case ReduceOp::sum:
                    combine_block(sums, next, size, [](A a, A b) { return add(a, b); });
                    break;
                case ReduceOp::max:
                    combine_block(sums, next, size, [](A a, A b) { return larger(a, b); });
                    break;
                case ReduceOp::min:
                    combine_block(sums, next, size, [](A a, A b) { return smaller(a, b); });
                    break;
            }
        }
        const Out* reduced = nullptr;
        if constexpr (std::is_same_v<A, Out>) {
            reduced = sums;
        } else {
            round_block(static_cast<const A*>(sums), rounded, size);
            reduced = rounded;
        }
        for (std::size_t i = 0; i < results; ++i) {
            const Result<Out> result = result_of(i);
            copy_elements(reduced, result.data + offset, size, result.store);
        }
    }
}

/// Returns the end of what is done, less than a few cache lines before `count`.
template <class In, class Out>
std::size_t sum_side_by_side(const Summands<In, Out>& summands, std::size_t begin, std::size_t count) noexcept {
    using A = Arithmetic<Out>;
    if constexpr (std::is_same_v<In, Out> && std::is_same_v<In, A>) {
        return sum_tiles(summands, begin, count);
    } else if constexpr (FloatingElement<In> && FloatingElement<Out>) {
        return sum_lanes<A>(summands, begin, count);
    } else {
        return begin;
    }
}

/// Reduces `count` elements of each of `ranks` inputs, in rank order 0, 1, ... in Arithmetic<Out>, rounds once, and
/// writes the result to each of `results` places; after streaming, `finish` before another thread may look.
/// A range is written only after all inputs have been read there, so a result may replace one of the inputs.
/// `input_of(q)` is rank q's first element, `result_of(i)` the i-th place as a Result<Out>.
template <class In, class Out, class InputOf, class ResultOf>
void reduce_in_rank_order(ReduceOp op, std::size_t ranks, std::size_t count, InputOf input_of, std::size_t results,
                          ResultOf result_of) noexcept {
    std::size_t done = 0;
    constexpr std::size_t most = Summands<In, Out>::most;
    if (op == ReduceOp::sum && ranks <= most && results <= most) {
        const Summands<In, Out> summands(ranks, input_of, results, result_of);
        const std::size_t begin = summands.elements_before_line(count);
        reduce_blocks<In, Out>(op, ranks, 0, begin, input_of, results, result_of);
        done = sum_side_by_side(summands, begin, count);
    }
    reduce_blocks<In, Out>(op, ranks, done, count, input_of, results, result_of);
}

/// The same with one result.
template <class In, class Out, class InputOf>
void reduce_in_rank_order(ReduceOp op, std::size_t ranks, std::size_t count, InputOf input_of,
                          Result<Out> result) noexcept {
    reduce_in_rank_order<In, Out>(op, ranks, count, input_of, 1, [&](std::size_t) { return result; });
}

}  // namespace shardkit::host::detail
