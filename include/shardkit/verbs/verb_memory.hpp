// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ranges>
#include <span>
#include <type_traits>

#include <shardkit/backend/host/memory.hpp>
#include <shardkit/backend/host/rank_order_reduction.hpp>
#include <shardkit/backend/host/reducer.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/elements.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit {

namespace detail {

/// Says whether V names memory that is there when the verb, which may return before, works on it.
template <class V>
inline constexpr bool outlives_call =
    std::is_lvalue_reference_v<V> || std::ranges::borrowed_range<std::remove_cvref_t<V>>;

/// Returns what a verb reads.
template <Contiguous V>
constexpr std::span<const ElementIn<V>> verb_input(V&& values) {
    static_assert(outlives_call<V>,
                  "a verb may read its input after it has returned: expected memory that lives on, not a temporary");
    return elements_of(values);
}
/// Returns what a verb writes.
template <Contiguous V>
constexpr std::span<ElementIn<V>> verb_output(V&& values) {
    static_assert(outlives_call<V>, "a verb writes its output: expected memory that lives on, not a temporary");
    static_assert(can_be_written<std::remove_reference_t<V>>,
                  "a verb writes its output: expected memory that is not const");
    if constexpr (can_be_written<std::remove_reference_t<V>>) {
        return elements_of(values);
    } else {
        return {};
    }
}
/// The element type of what a verb is given.
template <class V>
inline constexpr ElementType type_in = element_type_of<ElementIn<V>>;
/// Returns how a verb adds elements of one such type to elements of another.
template <class Input, class Output>
const host::detail::Reducer& reducer_in() noexcept {
    return host::detail::reducer<ElementIn<Input>, ElementIn<Output>>();
}
/// Says in one sentence that a verb's input and output have elements of one type.
template <class Input, class Output>
struct SameElements {
    static constexpr bool are_given = true;
    static_assert(std::is_same_v<ElementIn<Input>, ElementIn<Output>>,
                  "a verb that adds nothing up has input and output of one element type");
};

}  // namespace detail

}  // namespace shardkit
