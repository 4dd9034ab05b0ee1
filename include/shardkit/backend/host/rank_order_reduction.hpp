// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::host {

namespace detail {

/// Calls step(0) ... step(count - 1). The inner loop's fixed length is what lets compilers vectorise it at -O2.
template <class Step>
inline void for_each_index(std::size_t count, Step step) noexcept {
    constexpr std::size_t piece = 64;
    std::size_t i = 0;
    for (; i + piece <= count; i += piece) {
        for (std::size_t j = 0; j < piece; ++j) { step(i + j); }
    }
    for (; i < count; ++i) { step(i); }
}

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

template <class A, class In>
constexpr A widen(In value) noexcept {
    return static_cast<A>(static_cast<Arithmetic<In>>(value));
}

}  // namespace detail

/// Reduces `count` elements of each of `ranks` inputs, in rank order 0, 1, ... in Arithmetic<Out>, rounds once, and
/// hands the results over in blocks: store(offset, const Out* block, block_size).
/// A block is stored only after all inputs of its range have been read, so an output may be one of the inputs.
/// `input_of(q)` is rank q's first element.
template <class In, class Out, class InputOf, class Store>
void reduce_in_rank_order(ReduceOp op, std::size_t ranks, std::size_t count, InputOf input_of, Store store) noexcept {
    using A = Arithmetic<Out>;
    constexpr std::size_t block = 1024;  // accumulator and rounded block stay in the first-level cache
    A sums[block];
    [[maybe_unused]] Out rounded[std::is_same_v<A, Out> ? 1 : block];
    for (std::size_t offset = 0; offset < count; offset += block) {
        const std::size_t size = std::min(block, count - offset);
        const In* const first = input_of(std::size_t{0}) + offset;
        detail::for_each_index(size, [&](std::size_t i) { sums[i] = detail::widen<A>(first[i]); });
        for (std::size_t q = 1; q < ranks; ++q) {
            const In* const next = input_of(q) + offset;
            const auto combine = [&](auto two) {
                detail::for_each_index(size,
                                       [&](std::size_t i) { sums[i] = two(sums[i], detail::widen<A>(next[i])); });
            };
            switch (op) {
                case ReduceOp::sum:
                    combine([](A a, A b) { return detail::add(a, b); });
                    break;
                case ReduceOp::max:
                    combine([](A a, A b) { return detail::larger(a, b); });
                    break;
                case ReduceOp::min:
                    combine([](A a, A b) { return detail::smaller(a, b); });
                    break;
            }
        }
        if constexpr (std::is_same_v<A, Out>) {
            store(offset, static_cast<const Out*>(sums), size);
        } else {
            detail::for_each_index(size, [&](std::size_t i) { rounded[i] = static_cast<Out>(sums[i]); });
            store(offset, static_cast<const Out*>(rounded), size);
        }
    }
}

}  // namespace shardkit::host
