// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bitset>
#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>

#include <shardkit/core/dynamic.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/fixed_string.hpp>
#include <shardkit/param/attributes.hpp>
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

namespace detail {

template <class List, class... P>
struct SplitAliases {
    using type = List;
};
template <class... Kept, class First, class... Rest>
struct SplitAliases<std::tuple<Kept...>, First, Rest...>
    : std::conditional_t<AliasType<First>, SplitAliases<std::tuple<Kept...>, Rest...>,
                         SplitAliases<std::tuple<Kept..., First>, Rest...>> {};

template <class Q>
struct AliasTarget {
    using type = Q;
};
template <AliasType Q>
struct AliasTarget<Q> {
    using type = typename Q::AliasOf;
};

template <class Wanted, class... P>
constexpr std::size_t position_of(std::tuple<P...>*) noexcept {
    std::size_t position = 0;
    static_cast<void>(((std::is_same_v<Wanted, P> ? true : (++position, false)) || ...));
    return position;
}

template <std::size_t N>
constexpr bool distinct(const std::array<std::string_view, N>& names) noexcept {
    for (std::size_t i = 0; i < N; ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            if (names[i] == names[j]) { return false; }
        }
    }
    return true;
}

template <class Tuple>
struct StoredTraits;
template <class... P>
struct StoredTraits<std::tuple<P...>> {
    using Element = typename std::tuple_element_t<0, std::tuple<P...>>::Element;
    static constexpr bool one_element = (std::is_same_v<Element, typename P::Element> && ...);
    static constexpr std::array<std::string_view, sizeof...(P)> names{P::name...};
    static constexpr std::array<ParameterAttributes, sizeof...(P)> attributes{attributes_of<P>...};
    /// The extents that each parameter's type fixes, `dynamic` where it fixes none.
    static constexpr std::array<std::span<const std::size_t>, sizeof...(P)> extents{P::static_extents...};
    static constexpr bool splits_exist =
        ((tp_placement_of<P>.kind != TpPlacement::Kind::split || tp_placement_of<P>.dimension < P::rank) && ...);
    static constexpr bool stacks_whole =
        ((!attributes_of<P>.experts || (P::rank > 0 && !tp_splits_stack(attributes_of<P>))) && ...);
};

/// Whether an alias states nothing about tensor parallelism, Frozen and NoDecay, or the same as its target.
template <class Q>
inline constexpr bool states_as_target = [] {
    constexpr ParameterAttributes own = attributes_of<Q>;
    constexpr ParameterAttributes target = attributes_of<typename AliasTarget<Q>::type>;
    bool same = true;
    if constexpr (requires { typename Q::TensorParallel; }) { same = own.tp == target.tp; }
    if constexpr (requires { Q::frozen; }) { same = same && own.frozen == target.frozen; }
    if constexpr (requires { Q::decay; }) { same = same && own.decay == target.decay; }
    return same;
}();

}  // namespace detail

/// A name and the number of its parameter in the group.
struct ParameterName {
    std::string_view name;
    std::size_t number = 0;
};

/// A group of parameters: they lie in one flat buffer and are gathered and reduced together.
///     using Linear = Params<Weight, Bias>;
/// All have one element type, and their names are distinct. Aliases may stand anywhere in the list.
template <class... P>
struct Params {
    static_assert(((ParamType<P> || AliasType<P>)&&...),
                  "Params<...>: each argument must derive from Param or Alias; see param/params.hpp");
    static_assert((ParamType<P> || ...), "Params<...>: a group needs at least one Param");
    static_assert(detail::distinct(std::array<std::string_view, sizeof...(P)>{P::name...}),
                  "Params<...>: two parameters of the group have the same name");

    /// The parameters that have storage, in order, without aliases.
    using Stored = typename detail::SplitAliases<std::tuple<>, P...>::type;
    static_assert(detail::StoredTraits<Stored>::one_element,
                  "Params<...>: all parameters of a group have the same element type");

    using Element = typename detail::StoredTraits<Stored>::Element;
    static constexpr std::size_t count = std::tuple_size_v<Stored>;
    static constexpr std::array<std::string_view, count> names = detail::StoredTraits<Stored>::names;

    /// The attributes that the types state for each parameter.
    static constexpr std::array<ParameterAttributes, count> attributes = detail::StoredTraits<Stored>::attributes;
    static_assert(detail::StoredTraits<Stored>::splits_exist,
                  "Params<...>: tp::Split<Dimension> of a parameter that has no such dimension");
    static_assert(detail::partial_sums_adjacent(attributes),
                  "Params<...>: name the parameters that are tp::PartialSum one after the other: one call sums them");
    static_assert(
        detail::experts_apart(attributes),
        "Params<...>: some parameters are ep::Split and some are not; give experts a group of their own, as "
        "their gradients are summed over other ranks");
    static_assert(
        detail::StoredTraits<Stored>::stacks_whole,
        "Params<...>: ep::Split needs a first dimension that counts experts, which tp::Split<0> does not cut");
    static_assert((detail::states_as_target<P> && ...),
                  "Params<...>: an alias and the parameter it names disagree on TensorParallel, Frozen or NoDecay");

    template <std::size_t Index>
    using At = std::tuple_element_t<Index, Stored>;

    /// The position of Q, or of the target of the alias Q; `count` when it is not in the group.
    template <class Q>
    static constexpr std::size_t index =
        (std::is_same_v<Q, P> || ...)
            ? detail::position_of<typename detail::AliasTarget<Q>::type>(static_cast<Stored*>(nullptr))
            : count;
    template <class Q>
    static constexpr bool contains = index<Q> < count;

    /// The extents that each parameter's type fixes.
    static constexpr auto extents = detail::StoredTraits<Stored>::extents;
    /// Every name of the group, aliases included, with the number of its parameter.
    static constexpr std::array<ParameterName, sizeof...(P)> all_names{ParameterName{P::name, index<P>}...};

    static_assert((contains<P> && ...), "Params<...>: an alias names a parameter that is not in the group");

    /// One bit per parameter: mask<Weight>() has Weight's bit set.
    using Mask = std::bitset<count>;
    template <class... Q>
    static Mask mask() {
        static_assert((contains<Q> && ...), "Params::mask: this parameter is not in the group");
        Mask bits;
        (bits.set(index<Q>), ...);
        return bits;
    }
    static Mask all() { return Mask{}.set(); }
};

namespace detail {
template <class P>
struct AsGroup {
    using type = Params<P>;
};
template <class... P>
struct AsGroup<Params<P...>> {
    using type = Params<P...>;
};

/// Whether a group's types say that its parameters are experts. A TensorList says so at run time.
template <class Group>
inline constexpr bool has_experts = [] {
    if constexpr (requires { Group::attributes; }) {
        return Group::attributes[0].experts;
    } else {
        return false;
    }
}();
}  // namespace detail

/// The group that Sharded works on: Params<...> itself, or a single Param as a group of one.
template <class ParamOrGroup>
using GroupOf = typename detail::AsGroup<ParamOrGroup>::type;

}  // namespace shardkit
