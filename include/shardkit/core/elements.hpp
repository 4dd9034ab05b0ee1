// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <span>
#include <type_traits>
#include <utility>

#include <shardkit/core/codes.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::detail {

/// V holds contiguous values: an array, a vector, a span, a TensorView.
template <class V>
concept Contiguous = requires(V& values) {
    std::data(values);
    std::size(values);
};

template <class V>
constexpr auto elements_of(V& values) {
    return std::span(std::data(values), std::size(values));
}
/// The type of the elements, without const.
template <Contiguous V>
using ElementIn = std::remove_const_t<std::remove_pointer_t<decltype(std::data(std::declval<V&>()))>>;

template <class V>
inline constexpr bool holds_elements = requires {
    requires FloatingElement<ElementIn<V>>;
};
/// Whether they are not const; true where V holds none.
template <class V>
inline constexpr bool can_be_written = !Contiguous<V> || requires(V & values) {
    { *std::data(values) } -> std::same_as<ElementIn<V>&>;
};

/// Checks, with one sentence for each error, the values that a parameter's full values may be given as.
template <class V>
struct ValuesRules {
    static constexpr bool are_read = holds_elements<std::remove_reference_t<V>>;
    static_assert(are_read, "values: expected an array, a vector or a span of floating elements");
    static constexpr bool can_be_written = detail::can_be_written<std::remove_reference_t<V>>;
    static constexpr bool are_written = are_read && can_be_written;
};
/// Checks likewise the values of a group whose elements are `Group`.
template <class Group, class V>
struct ValuesOfGroup {
    static_assert(!is_coded<ElementIn<std::remove_reference_t<V>>>,
                  "values: codes without their scales are no numbers; expected floating elements");
    static constexpr bool both_opaque = is_opaque<Group> == is_opaque<ElementIn<std::remove_reference_t<V>>>;
    static_assert(
        both_opaque,
        "values: opaque bytes have no numbers; expected std::byte for a group of std::byte, and for no other");
};
/// Checks likewise the values that the library writes to.
template <class V>
struct TargetRules : ValuesRules<V> {
    static_assert(ValuesRules<V>::can_be_written, "read_full: the values are const, expected memory to write to");
};

}  // namespace shardkit::detail
