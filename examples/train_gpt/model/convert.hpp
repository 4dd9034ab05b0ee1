// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>

#include <shardkit/core/element.hpp>

namespace train_gpt {

template <class T>
using Arithmetic = shardkit::Arithmetic<T>;

/// Whether parameters of type T must be converted before a matrix product can read them.
template <class T>
inline constexpr bool needs_conversion = !std::same_as<T, Arithmetic<T>>;

/// `values` in the arithmetic type: the pointer itself where the types agree, else a copy in `scratch`.
template <class T>
const Arithmetic<T>* in_arithmetic(const T* values, std::size_t count, [[maybe_unused]] Arithmetic<T>* scratch) {
    if constexpr (needs_conversion<T>) {
        for (std::size_t i = 0; i < count; ++i) { scratch[i] = static_cast<Arithmetic<T>>(values[i]); }
        return scratch;
    } else {
        return values;
    }
}

/// sums[i] += addends[i]; added in the arithmetic type and rounded once to T.
template <class T>
void add_rounded(T* sums, const Arithmetic<T>* addends, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        sums[i] = static_cast<T>(static_cast<Arithmetic<T>>(sums[i]) + addends[i]);
    }
}

}  // namespace train_gpt
