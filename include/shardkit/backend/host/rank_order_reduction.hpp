// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <shardkit/backend/host/convert_block.hpp>
#include <shardkit/backend/host/for_each_index.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::host {

/// Elements at a time: few enough that accumulator and rounded block stay in the first-level cache.
inline constexpr std::size_t reduction_block = 1024;

namespace detail {

template <class A>
constexpr A add(A a, A b) noexcept {
    if constexpr (std::is_integral_v<A>) {
        using Unsigned = std::make_unsigned_t<A>;  // wraps around instead of being undefined
        return static_cast<A>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
        return a + b;
    }
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

}  // namespace detail

/// Reduces `count` elements of each of `ranks` inputs, in rank order 0, 1, ... in Arithmetic<Out>, rounds once, and
/// hands the results over in blocks: write(offset, const Out* block, block_size).
/// A block is written only after all inputs of its range have been read, so an output may be one of the inputs.
/// `input_of(q)` is rank q's first element.
template <class In, class Out, class InputOf, class Write>
void reduce_in_rank_order(ReduceOp op, std::size_t ranks, std::size_t count, InputOf input_of, Write write) noexcept {
    using A = Arithmetic<Out>;
    constexpr std::size_t block = reduction_block;
    A sums[block];
    [[maybe_unused]] Out rounded[std::is_same_v<A, Out> ? 1 : block];
    for (std::size_t offset = 0; offset < count; offset += block) {
        const std::size_t size = std::min(block, count - offset);
        widen_block(input_of(std::size_t{0}) + offset, sums, size);
        for (std::size_t q = 1; q < ranks; ++q) {
            const In* const next = input_of(q) + offset;
            switch (op) {
                case ReduceOp::sum:
                    detail::combine_block(sums, next, size, [](A a, A b) { return detail::add(a, b); });
                    break;
                case ReduceOp::max:
                    detail::combine_block(sums, next, size, [](A a, A b) { return detail::larger(a, b); });
                    break;
                case ReduceOp::min:
                    detail::combine_block(sums, next, size, [](A a, A b) { return detail::smaller(a, b); });
                    break;
            }
        }
        if constexpr (std::is_same_v<A, Out>) {
            write(offset, static_cast<const Out*>(sums), size);
        } else {
            round_block(static_cast<const A*>(sums), rounded, size);
            write(offset, static_cast<const Out*>(rounded), size);
        }
    }
}

}  // namespace shardkit::host
