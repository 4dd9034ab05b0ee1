// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iterator>
#include <utility>

// The parts of ranges that the library needs, from <iterator>. <ranges>, with all its views, would take a twentieth
// of the whole umbrella's compile time.

namespace shardkit::detail {

template <class T>
concept Range = requires(T& range) {
    std::ranges::begin(range);
    std::ranges::end(range);
};
template <Range T>
using RangeIterator = decltype(std::ranges::begin(std::declval<T&>()));
template <Range T>
using RangeValue = std::iter_value_t<RangeIterator<T>>;
/// A forward range can be traversed twice.
template <class T>
concept ForwardRange = Range<T> && std::forward_iterator<RangeIterator<T>>;

}  // namespace shardkit::detail
