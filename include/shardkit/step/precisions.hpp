// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <type_traits>

#include <shardkit/core/element.hpp>

namespace shardkit {

/// Lists several precisions of one model: Model<Precisions<DefaultPrecision<bf16>, DefaultPrecision<float>>>.
/// Another order makes another type; `Model model{...}` always sorts them by their element types.
template <class... P>
struct Precisions {};

namespace detail {

/// The sort key of a precision, so that models with equal precisions have one type.
template <class P>
inline constexpr std::array<ElementType, 4> precision_key{
    element_type_of<typename P::Gather>, element_type_of<typename P::Gradient>,
    element_type_of<typename P::Reduction>, element_type_of<typename P::Master>};

/// Inserts P in its place in `Sorted...`, unless it is already there.
template <class P, class Before, class Sorted>
struct InsertPrecision;
template <class P, class... Before>
struct InsertPrecision<P, Precisions<Before...>, Precisions<>> {
    using type = Precisions<Before..., P>;
};
template <class P, class... Before, class First, class... Rest>
struct InsertPrecision<P, Precisions<Before...>, Precisions<First, Rest...>> {
    static constexpr bool here = precision_key<P> < precision_key<First>;
    using later = InsertPrecision<P, Precisions<Before..., First>, Precisions<Rest...>>;
    struct Here {
        using type = Precisions<Before..., P, First, Rest...>;
    };
    using type = typename std::conditional_t<here, Here, later>::type;
};
template <class P, class... Before, class... Rest>
struct InsertPrecision<P, Precisions<Before...>, Precisions<P, Rest...>> {
    using type = Precisions<Before..., P, Rest...>;
};
template <class Sorted, class... P>
struct SortPrecisions {
    using type = Sorted;
};
template <class Sorted, class P, class... Rest>
struct SortPrecisions<Sorted, P, Rest...>
    : SortPrecisions<typename InsertPrecision<P, Precisions<>, Sorted>::type, Rest...> {};

template <class Sorted, class... P, class... Rest>
struct SortPrecisions<Sorted, Precisions<P...>, Rest...> : SortPrecisions<Sorted, P..., Rest...> {};

/// The parameter of a Model for a list of precisions: a single precision stands without a list.
template <class P>
struct NamePrecisions {
    using type = P;
};
template <class P>
struct NamePrecisions<Precisions<P>> {
    using type = P;
};

/// The list of precisions for a Model's parameter.
template <class P>
struct PrecisionList {
    using type = Precisions<P>;
};
template <class... P>
struct PrecisionList<Precisions<P...>> {
    using type = Precisions<P...>;
};
template <class P>
using PrecisionsOf = typename PrecisionList<P>::type;
template <class Wanted, class... P>
constexpr bool is_among(Precisions<P...> /*list*/) {
    return (std::is_same_v<Wanted, P> || ...);
}
template <class List, class... Wanted>
constexpr bool are_among(List list, Precisions<Wanted...> /*wanted*/) {
    return (is_among<Wanted>(list) && ...);
}

}  // namespace detail

}  // namespace shardkit
