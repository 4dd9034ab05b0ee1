// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include <shardkit/core/dynamic.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/fixed_string.hpp>
#include <shardkit/param/tensor_shape.hpp>

namespace shardkit {

/// Declares a parameter as a type. Code names the parameter by the derived type, errors by `Name`.
///     struct Weight : Param<"weight", float, dynamic, dynamic> {};
/// Shapes:  row-major extents, each static or `dynamic`; no extents is a scalar.
template <FixedString Name, FloatingElement E, std::size_t... Extents>
struct Param {
    static_assert(sizeof...(Extents) <= TensorShape::max_rank, "Param: at most 8 dimensions");
    static_assert(((Extents != 0) && ...), "Param: every extent must be at least 1");

    using Element = E;
    static constexpr std::string_view name = Name.view();
    static constexpr std::size_t rank = sizeof...(Extents);
    static constexpr std::array<std::size_t, rank> static_extents{Extents...};
    static constexpr bool fully_static = ((Extents != dynamic) && ...);
};

/// Gives a parameter of the same group a second name (tied weights), without storage of its own; views are the same.
///     struct LmHead : Alias<"lm_head.weight", Wte> {};
template <FixedString Name, class Target>
struct Alias {
    using AliasOf = Target;
    static constexpr std::string_view name = Name.view();
};

/// A type that is derived from Param.
template <class P>
concept ParamType = requires {
    requires FloatingElement<typename P::Element>;
    { P::name } -> std::convertible_to<std::string_view>;
    { P::rank } -> std::convertible_to<std::size_t>;
    P::static_extents;
};

/// A type that is derived from Alias.
template <class P>
concept AliasType = requires {
    typename P::AliasOf;
    { P::name } -> std::convertible_to<std::string_view>;
};

}  // namespace shardkit
