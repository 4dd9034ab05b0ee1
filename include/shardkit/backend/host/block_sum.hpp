// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>

#include <shardkit/backend/host/lanes_io.hpp>

namespace shardkit::host {

/// Elements that are added up in the arithmetic type before the sum goes on in double.
inline constexpr std::size_t block_elements = 4096;

/// Partial sums that a block is spread over: a fixed number, so that the order of additions does not depend
/// on the width of the machine's registers.
template <std::floating_point A>
inline constexpr std::size_t partial_sums = 128 / sizeof(A);

/// The sum of term(element) over one block, in A: element i goes to partial sum i mod partial_sums<A>, then
/// the halves are added to each other until one is left. Missing elements at the end count as zeros.
/// @pre term(0) is 0
template <std::floating_point A, FloatingElement T, class Term>
[[gnu::noinline]] A block_sum(std::span<const T> block, const Term& term) {
    constexpr std::size_t row = partial_sums<A>;
    constexpr std::size_t parts = row / Lanes<A>::count;
    const Term local = term;
    Lanes<A> sums[parts]{};
    const auto add_row = [&](const T* elements) {
        for (std::size_t part = 0; part < parts; ++part) {
            sums[part] = sums[part] + local(load<A>(elements + part * Lanes<A>::count));
        }
    };

    const std::size_t rest = block.size() % row;
    const std::size_t whole = block.size() - rest;
    for (std::size_t i = 0; i < whole; i += row) { add_row(block.data() + i); }
    if (rest != 0) {
        T padded[row]{};
        std::copy_n(block.data() + whole, rest, padded);
        add_row(padded);
    }

    A partial[row];
    for (std::size_t part = 0; part < parts; ++part) { store(sums[part], partial + part * Lanes<A>::count); }
    for (std::size_t half = row / 2; half > 0; half /= 2) {
        for (std::size_t i = 0; i < half; ++i) { partial[i] += partial[half + i]; }
    }
    return partial[0];
}

}  // namespace shardkit::host
