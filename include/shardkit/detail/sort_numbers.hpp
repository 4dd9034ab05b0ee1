// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

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

}  // namespace shardkit::detail
