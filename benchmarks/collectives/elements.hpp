// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <shardkit/core/element.hpp>

#include "shape.hpp"
#include "verbs/verb.hpp"

namespace benchmarks {

/// A whole number as an element: rounded as the type rounds, or its lower bits.
template <class T>
T as_element(std::uint64_t number) noexcept {
    return static_cast<T>(static_cast<shardkit::Arithmetic<T>>(number));
}

/// What no result is allowed to keep: unlike every value, except that one value of uint8 is the same.
template <class T>
T untouched() noexcept {
    T element{};
    std::memset(static_cast<void*>(&element), 0xa5, sizeof element);
    return element;
}

/// n elements as a rank must have them: number(shape, i), or untouched where there is no number.
template <class T>
std::vector<T> elements(std::size_t n, NumberAt number, const Shape& shape) {
    std::vector<T> values(n);
    for (std::size_t i = 0; i < n; ++i) {
        const Number value = number(shape, i);
        values[i] = value ? as_element<T>(*value) : untouched<T>();
    }
    return values;
}

/// How many elements are not those.
template <class T>
std::uint64_t count_wrong(std::span<const T> given, NumberAt number, const Shape& shape) {
    const std::vector<T> right = elements<T>(given.size(), number, shape);
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < given.size(); ++i) { wrong += given[i] == right[i] ? 0U : 1U; }
    return wrong;
}

}  // namespace benchmarks
