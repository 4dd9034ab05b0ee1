// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include <shardkit/backend/host/bf16_sums.hpp>
#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/host/device_kernels.hpp>
#include <shardkit/backend/host/for_each_lanes.hpp>
#include <shardkit/backend/host/lanes.hpp>
#include <shardkit/backend/host/reducer.hpp>
#include <shardkit/backend/host/summands.hpp>
#include <shardkit/backend/host/target.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::host::detail SHARDKIT_HOST_TARGET {

/// The number of elements in a block, small enough that accumulator and rounded block stay in the first-level cache.
inline constexpr std::size_t reduction_block = 1024;

/// Returns the sum; of integers that of unsigned ones, whose overflow is defined.
template <class A>
constexpr A add(A a, A b) noexcept {
    if constexpr (std::is_integral_v<A>) {
        return static_cast<A>(static_cast<std::make_unsigned_t<A>>(a) + static_cast<std::make_unsigned_t<A>>(b));
    } else {
        return a + b;
    }
}

/// Returns the larger value. A NaN of any rank is kept, so that a maximum cannot hide a broken gradient.
template <class A>
constexpr A larger(A a, A b) noexcept {
    return a < b || b != b ? b : a;
}
template <class A>
constexpr A smaller(A a, A b) noexcept {
    return b < a || b != b ? b : a;
}

/// Adds up elements [begin, end) in A, in rank order or along a tree of `Tree` ranks, and rounds once.
/// @pre sums_in_lanes(); end - begin is a multiple of summed_elements<A>; streamed results begin a cache line at
/// `begin`
template <std::size_t Tree, std::floating_point A, FloatingElement In, FloatingElement Out>
void sum_lanes(const Operands& operands, std::size_t begin, std::size_t end) noexcept {
    if constexpr (std::is_same_v<In, bf16> && std::is_same_v<Out, bf16>) {
        if (avx512::use()) { return avx512::sum_bf16<Tree>(operands, begin, end); }
    }
    avx2::sum_lanes<A, Tree, In, Out>(operands, begin, end);
}

/// Does the same for the elements from `begin` on, fewer than summed_elements<A>: of copies with zeros behind them,
/// as one by one they would take longer than many times as many do in lanes.
template <std::size_t Tree, std::floating_point A, FloatingElement In, FloatingElement Out>
void sum_rest(const Operands& operands, std::size_t begin, std::size_t count) noexcept {
    constexpr std::size_t size = summed_elements<A>;
    In inputs[Operands::most][size];
    Out sums[size];
    const auto input = [&](std::size_t q) -> const In* {
        std::fill(std::copy(operands.input<In>(q) + begin, operands.input<In>(q) + count, inputs[q]),
                  inputs[q] + size, In{});
        return inputs[q];
    };
    const auto rounded = [&](std::size_t) { return Result<Out>{sums}; };
    const Operands copies(operands.ranks, input, 1, rounded);
    sum_lanes<Tree, A, In, Out>(copies, 0, size);
    for (std::size_t i = 0; i < operands.results; ++i) {
        const Result<Out> result = operands.result<Out>(i);
        copy_elements(sums, result.data + begin, count - begin, result.store);
    }
}

/// Writes sums[i] = two(sums[i], next[i]).
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

/// Writes a block to all places, rounded.
template <class A, class Out>
void write_block(const A* sums, std::size_t offset, std::size_t size, const Operands& operands) noexcept {
    [[maybe_unused]] Out rounded[std::is_same_v<A, Out> ? 1 : reduction_block];
    const Out* reduced = nullptr;
    if constexpr (std::is_same_v<A, Out>) {
        reduced = sums;
    } else {
        round_block(sums, rounded, size);
        reduced = rounded;
    }
    for (std::size_t i = 0; i < operands.results; ++i) {
        const Result<Out> result = operands.any_result<Out>(i);
        copy_elements(reduced, result.data + offset, size, result.store);
    }
}

/// Adds elements [begin, end) along a tree, block after block. The sums of finished subtrees are on a stack, as the
/// digits of a binary counter are: a subtree of 2^k ranks is followed by its neighbour of the same size.
/// @pre `ranks` is a power of two
template <class In, class Out>
void tree_blocks(const Operands& operands, std::size_t begin, std::size_t end) noexcept {
    using A = Arithmetic<Out>;
    constexpr std::size_t block = 64;
    constexpr std::size_t levels = 33;  // of 2^32 ranks
    A stack[levels][block];
    for (std::size_t offset = begin; offset < end; offset += block) {
        const std::size_t size = std::min(block, end - offset);
        std::size_t depth = 0;
        for (std::size_t q = 0; q < operands.ranks; ++q) {
            widen_block(operands.any_input<In>(q) + offset, stack[depth++], size);
            for (std::size_t finished = q; finished % 2 == 1; finished /= 2) {
                --depth;
                combine_block(stack[depth - 1], stack[depth], size, [](A a, A b) { return add(a, b); });
            }
        }
        write_block<A, Out>(stack[0], offset, size, operands);
    }
}

/// Reduces elements [begin, end) for reduce_in_rank_order(), block after block; a block stays in the first-level
/// cache.
template <bool Trees, class In, class Out>
void reduce_blocks(ReduceOp op, const Operands& operands, std::size_t begin, std::size_t end) noexcept {
    using A = Arithmetic<Out>;
    constexpr std::size_t block = reduction_block;
    A sums[block];
    if constexpr (Trees) {
        if (op == ReduceOp::tree_sum) { return tree_blocks<In, Out>(operands, begin, end); }
    }
    for (std::size_t offset = begin; offset < end; offset += block) {
        const std::size_t size = std::min(block, end - offset);
        widen_block(operands.any_input<In>(0) + offset, sums, size);
        for (std::size_t q = 1; q < operands.ranks; ++q) {
            const In* const next = operands.any_input<In>(q) + offset;
            if (op == ReduceOp::max) {
                combine_block(sums, next, size, [](A a, A b) { return larger(a, b); });
            } else if (op == ReduceOp::min) {
                combine_block(sums, next, size, [](A a, A b) { return smaller(a, b); });
            } else {
                combine_block(sums, next, size, [](A a, A b) { return add(a, b); });
            }
        }
        write_block<A, Out>(sums, offset, size, operands);
    }
}

/// Adds up elements from `begin` on side by side, if they are floating-point ones and the processor has sum_lanes.
/// Returns the end of the finished part.
template <std::size_t Tree, class In, class Out>
std::size_t sum_side_by_side(const Operands& operands, std::size_t begin, std::size_t count) noexcept {
    if constexpr (FloatingElement<In> && FloatingElement<Out>) {
        if (!sums_in_lanes()) { return begin; }
        using A = Arithmetic<Out>;
        const std::size_t rest = (count - begin) % summed_elements<A>;
        sum_lanes<Tree, A, In, Out>(operands, begin, count - rest);
        if (rest != 0) { sum_rest<Tree, A, In, Out>(operands, count - rest, count); }
        return count;
    } else {
        return begin;
    }
}

/// Implements reduce_in_rank_order(); without `Trees` not for a tree_sum.
template <bool Trees, class In, class Out>
void reduce_summands(ReduceOp op, const Operands& operands, std::size_t count) noexcept {
    std::size_t done = 0;
    const std::size_t ranks = operands.ranks;
    if ((op == ReduceOp::sum || op == ReduceOp::tree_sum) && ranks > 1 && operands.side_by_side()) {
        const std::size_t begin = operands.elements_before_line<Out>(count);
        reduce_blocks<Trees, In, Out>(op, operands, 0, begin);
        if (!Trees || op == ReduceOp::sum || ranks == 2) {
            done = sum_side_by_side<0, In, Out>(operands, begin, count);
        } else if constexpr (Trees) {
            done = ranks == 4   ? sum_side_by_side<4, In, Out>(operands, begin, count)
                   : ranks == 8 ? sum_side_by_side<8, In, Out>(operands, begin, count)
                                : sum_side_by_side<tree_of_bundles, In, Out>(operands, begin, count);
        }
    }
    reduce_blocks<Trees, In, Out>(op, operands, done, count);
}

/// Returns what gives a device's stream its kernel; null where it has none.
template <class In, class Out>
constexpr auto device_reduction() noexcept -> void (*)(const Stream&, const engine::ReductionStep&) {
    if constexpr (FloatingElement<In> && FloatingElement<Out>) {
        return [](const Stream& stream, const engine::ReductionStep& step) {
            shardkit::detail::give_to_device(stream, engine::Reduce<In, Out>{step});
        };
    } else {
        return nullptr;
    }
}

/// The Reducer of two element types; one without `Trees` is given no tree_sum.
template <Element In, Element Out, bool Trees = true>
inline constexpr Reducer reducer_of{sizeof(In),
                                    sizeof(Out),
                                    element_type_of<In>,
                                    element_type_of<Out>,
                                    [](ReduceOp op, const Operands& operands, std::size_t count) noexcept {
                                        reduce_summands<Trees, In, Out>(op, operands, count);
                                    },
                                    std::is_same_v<In, Out>,
                                    std::is_same_v<Out, Arithmetic<Out>>,
                                    element_type_of<Arithmetic<Out>>,
                                    device_reduction<In, Out>()};

}  // namespace shardkit::host::detail SHARDKIT_HOST_TARGET

namespace shardkit::host::detail SHARDKIT_CHECKED_BUILD {
/// Returns the Reducer of two types that the core of the compiled form has.
/// @pre core_reduces
const Reducer& core_reducer(ElementType in, ElementType out) noexcept;
}  // namespace SHARDKIT_CHECKED_BUILD

namespace shardkit::host::detail SHARDKIT_HOST_TARGET {

/// Whether the core has the Reducer of two types: of the library's own, a type's with itself and a 16-bit one's with
/// fp32.
template <class In, class Out>
inline constexpr bool core_reduces =
    (std::is_same_v<In, Out> && (std::is_arithmetic_v<In> || std::is_same_v<In, bf16> || std::is_same_v<In, fp16>)) ||
    (std::is_same_v<Out, float> && (std::is_same_v<In, bf16> || std::is_same_v<In, fp16>));

/// Returns the Reducer of two types for a verb: the core's, so that sums are the same whatever the file is compiled
/// for.
template <Element In, Element Out, bool Trees = true>
const Reducer& reducer() noexcept {
#ifdef SHARDKIT_COMPILED
    if constexpr (core_reduces<In, Out>) {
        return core_reducer(element_type_of<In>, element_type_of<Out>);
    } else
#endif
    {
        return reducer_of<In, Out, Trees>;
    }
}

}  // namespace shardkit::host::detail SHARDKIT_HOST_TARGET
