// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <tuple>
#include <utility>

// The parts of ranges that the library needs, from what <span> has of <iterator>. <ranges>, with all its views, would
// take a twentieth of the whole umbrella's compile time, and <iterator> brings streams and locales.

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

/// Returns the first of a list's items of which `is` holds; null if there is none. In place of std::find_if, of which
/// g++ makes eight functions for each condition without optimization, and a loop four times as long with it.
template <class Items, class Is>
[[gnu::always_inline]] inline auto* first_that(Items& items, const Is& is) {
    auto* const end = items.data() + items.size();
    for (auto* at = items.data(); at != end; ++at) {
        if (is(*at)) { return at; }
    }
    return static_cast<decltype(end)>(nullptr);
}
template <class Items, class Is>
[[gnu::always_inline]] inline bool any_that(const Items& items, const Is& is) {
    return first_that(items, is) != nullptr;
}
template <class Items, class Item>
[[gnu::always_inline]] inline bool has(const Items& items, const Item& item) {
    return any_that(items, [&](const auto& one) { return one == item; });
}

}  // namespace shardkit::detail
