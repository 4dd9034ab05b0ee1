// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>

#include <shardkit/backend/host/for_each_index.hpp>
#include <shardkit/backend/host/for_each_lanes.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::host::detail {

/// Conversions of fp16 have branches, so they need the short vectors that others are turned into by the compiler.
template <class From, class To>
inline constexpr bool needs_lanes = (std::same_as<From, fp16> && std::floating_point<To>) ||
                                    (std::same_as<To, fp16> && std::floating_point<From>);

template <std::floating_point A, class From, class To>
void convert_by_lanes(const From* from, To* to, std::size_t count) noexcept {
    for_each_lanes<A>(
        count, [](auto source, auto& target) __attribute__((always_inline)) { target = source; }, Input<From>{from},
        Output<To>{to});
}

/// to[i] = from[i] in the arithmetic type A, for `count` elements that do not overlap.
template <class A, Element In>
void widen_block(const In* from, A* to, std::size_t count) noexcept {
    if constexpr (needs_lanes<In, A>) {
        convert_by_lanes<A>(from, to, count);
    } else {
        for_each_index(count, [&](std::size_t i) { to[i] = static_cast<A>(static_cast<Arithmetic<In>>(from[i])); });
    }
}

/// to[i] = from[i] rounded to Out, for `count` elements that do not overlap.
template <Element Out, class A>
void round_block(const A* from, Out* to, std::size_t count) noexcept {
    if constexpr (needs_lanes<A, Out>) {
        convert_by_lanes<A>(from, to, count);
    } else {
        for_each_index(count, [&](std::size_t i) { to[i] = static_cast<Out>(from[i]); });
    }
}

}  // namespace shardkit::host::detail
