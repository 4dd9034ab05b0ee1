// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include <shardkit/core/bf16.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/fp16.hpp>

#include "options.hpp"
#include "verbs.hpp"

namespace benchmarks {

/// f(std::type_identity<T>{}) with the element type, returning what f returns.
template <class F>
auto with_type(DataType type, F f) {
    switch (type) {
        case DataType::fp64:
            return f(std::type_identity<double>{});
        case DataType::fp32:
            return f(std::type_identity<float>{});
        case DataType::fp16:
            return f(std::type_identity<shardkit::fp16>{});
        case DataType::bf16:
            return f(std::type_identity<shardkit::bf16>{});
        case DataType::int64:
            return f(std::type_identity<std::int64_t>{});
        case DataType::int32:
            return f(std::type_identity<std::int32_t>{});
        case DataType::uint8:
            return f(std::type_identity<std::uint8_t>{});
    }
    throw std::logic_error("with_type: unknown element type");
}

/// Of one element.
inline std::size_t bytes_of(DataType type) {
    return with_type(type, []<class T>(std::type_identity<T>) { return sizeof(T); });
}

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
