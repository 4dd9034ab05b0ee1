// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>

#include <shardkit/core/element.hpp>

#include "place.hpp"

namespace train_gpt {

template <class T>
using Arithmetic = shardkit::Arithmetic<T>;

/// Whether parameters of type T must be converted before a matrix product can read them.
template <class T>
inline constexpr bool needs_conversion = !std::same_as<T, Arithmetic<T>>;

/// As each: to[i] = from[i], rounded.
template <class From, class To>
struct Convert {
    const From* from;
    To* to;

    constexpr void operator()(std::size_t i) const { to[i] = static_cast<To>(from[i]); }
};

/// As each: sums[i] += the sum of the parts' addends, in their order; added in the arithmetic type and rounded once
/// to T. Shapes: addends [parts, stride].
template <class T, class Addend = Arithmetic<T>>
struct AddRounded {
    using A = Arithmetic<T>;

    T* sums;
    const Addend* addends;
    std::size_t parts = 1;
    std::size_t stride = 0;

    constexpr void operator()(std::size_t i) const {
        A sum = static_cast<A>(addends[i]);
        for (std::size_t part = 1; part < parts; ++part) { sum += static_cast<A>(addends[part * stride + i]); }
        sums[i] = static_cast<T>(static_cast<A>(sums[i]) + sum);
    }
};

template <class T, class Addend, class Place = HostPlace>
void add_rounded(T* sums, const Addend* addends, std::size_t count, const Place& place = {}) {
    place.each(count, AddRounded<T, Addend>{sums, addends});
}

/// `values` as activations are stored: the pointer itself where the types agree, else a copy in `scratch`.
template <class S, class T, class Place>
const S* as_stored(const T* values, std::size_t count, [[maybe_unused]] Arithmetic<T>* scratch,
                   [[maybe_unused]] const Place& place) {
    if constexpr (std::same_as<S, T>) {
        return values;
    } else {
        place.each(count, Convert<T, S>{values, scratch});
        return scratch;
    }
}

}  // namespace train_gpt
