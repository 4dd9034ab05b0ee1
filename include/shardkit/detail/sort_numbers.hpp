// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <shardkit/detail/list.hpp>

namespace shardkit::detail {

/// The order that `sort_numbers` was given, without its type.
struct NumbersOrder {
    const void* less;
    bool (*call)(const void* less, std::size_t a, std::size_t b);

    bool operator()(std::size_t a, std::size_t b) const { return call(less, a, b); }
};

/// Sorts numbers so that less(a, b) holds for none behind another. There is one std::sort for all orders, which is
/// twenty-five functions without optimization.
template <class Less>
void sort_numbers(std::span<std::size_t> numbers, const Less& less) {
    std::sort(numbers.data(), numbers.data() + numbers.size(),
              NumbersOrder{&less, [](const void* order, std::size_t a, std::size_t b) {
                               return (*static_cast<const Less*>(order))(a, b);
                           }});
}
inline void sort_numbers(std::span<std::size_t> numbers) {
    sort_numbers(numbers, [](std::size_t a, std::size_t b) { return a < b; });
}

/// Sorts the values of a List or a std::vector, and keeps the order of those of which neither is less.
template <class Values, class Less>
void sort_stably(Values& values, const Less& less) {
    List<std::size_t> order(values.size());
    for (std::size_t i = 0; i < order.size(); ++i) { order[i] = i; }
    sort_numbers({order.data(), order.size()}, [&](std::size_t a, std::size_t b) {
        return less(values[a], values[b]) || (a < b && !less(values[b], values[a]));
    });
    Values sorted;
    sorted.reserve(order.size());
    for (const std::size_t i : order) { sorted.push_back(static_cast<typename Values::value_type&&>(values[i])); }
    values.swap(sorted);
}

}  // namespace shardkit::detail
