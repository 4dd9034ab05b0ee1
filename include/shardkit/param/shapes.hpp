// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <utility>

#include <shardkit/core/elements.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/param/parameter_record.hpp>
#include <shardkit/param/params.hpp>

namespace shardkit {

/// The extents of parameter P.
template <ParamType P>
struct ShapeOf {
    std::array<std::size_t, P::rank> extents{};
};

/// Makes the shape of parameter P from its extents: shape<Weight>(768, 3072). It takes every extent of P, in order,
/// including those that its type fixes.
template <ParamType P, std::convertible_to<std::size_t>... N>
constexpr ShapeOf<P> shape(N... extents) {
    static_assert(sizeof...(N) == P::rank, "shape<P>(...): one extent for each dimension of P");
    return {{static_cast<std::size_t>(extents)...}};
}

/// Makes the shape of parameter P from an array or span of extents: shape<Weight>(dims).
template <ParamType P, detail::Contiguous Extents>
constexpr ShapeOf<P> shape(const Extents& extents, SourceLocation where = SourceLocation::current()) {
    require_argument(std::size(extents) == P::rank, where, "shape of '", static_cast<std::string_view>(P::name),
                     "': ", std::size(extents), " extents, expected ", std::size_t{P::rank});
    ShapeOf<P> made;
    for (std::size_t d = 0; d < P::rank; ++d) { made.extents[d] = static_cast<std::size_t>(std::data(extents)[d]); }
    return made;
}

/// The shapes of all parameters of a group, in any order. Parameters with static extents need none.
///     Shapes<Linear>{shape<Weight>(768, 3072), shape<Bias>(768)}
template <class ParamOrGroup>
class Shapes {
  public:
    using Group = GroupOf<ParamOrGroup>;

    /// Accepts any extents: check() refuses invalid ones once the group's path is known.
    template <ParamType... Q>
    constexpr Shapes(ShapeOf<Q>... given) noexcept {  // NOLINT(google-explicit-constructor): a list of shapes is one
        static_assert((Group::template contains<Q> && ...),
                      "Shapes: a shape for a parameter that is not in the group");
        static_assert((given_once<Q, Q...>() && ...), "Shapes: two shapes for one parameter");
        [&]<std::size_t... Index>(std::index_sequence<Index...>) {
            static_assert((given_or_static<typename Group::template At<Index>, Q...>() && ...),
                          "Shapes: a parameter with a dynamic extent has no shape; give shape<P>(...) for it");
        }
        (std::make_index_sequence<Group::count>{});
        for (std::size_t p = 0; p < count; ++p) { set(p, Group::extents[p]); }
        (set(Group::template index<Q>, given.extents), ...);
    }

    /// Converts the Shapes<P> of a single Param to those of the group Params<P>.
    template <ParamType Single>
    requires std::same_as<GroupOf<Single>, ParamOrGroup>
    constexpr Shapes(const Shapes<Single>& single) noexcept  // NOLINT(google-explicit-constructor): the same shapes
        : shapes_{single[0]} {}

    /// Checks that the group at `path` can have these shapes.
    /// @throws std::invalid_argument that names path and parameter for an extent of zero, one that differs from its
    ///         static value, or a shape whose element count overflows
    constexpr void check(std::string_view path, SourceLocation where = SourceLocation::current()) const {
        for (std::size_t p = 0; p < count; ++p) {
            detail::check_shape(path, Group::names[p], shapes_[p], Group::extents[p], where);
        }
    }

    constexpr const TensorShape& operator[](std::size_t i) const noexcept { return shapes_[i]; }
    static constexpr std::size_t count = Group::count;
    /// Returns parameter i as a value, with the attributes that its type states.
    constexpr ParameterRecord record(std::size_t i) const noexcept {
        return {Group::attributes[i], Group::names[i], shapes_[i]};
    }

  private:
    template <class P, class... Q>
    static constexpr bool given_or_static() noexcept {
        return P::fully_static || (std::is_same_v<P, Q> || ...);
    }
    template <class P, class... Q>
    static constexpr bool given_once() noexcept {
        return (std::size_t{std::is_same_v<P, Q>} + ...) == 1;
    }
    constexpr void set(std::size_t index, std::span<const std::size_t> extents) noexcept {
        shapes_[index].rank = extents.size();
        for (std::size_t i = 0; i < extents.size(); ++i) { shapes_[index].extents[i] = extents[i]; }
    }

    std::array<TensorShape, Group::count> shapes_{};
};

namespace detail {
template <class Group>
struct GroupTensors {
    using type = Shapes<Group>;
};
}  // namespace detail

/// The type that describes a group's tensors at construction: Shapes where parameters are types, otherwise a
/// TensorList.
template <class ParamOrGroup>
using TensorsOf = typename detail::GroupTensors<GroupOf<ParamOrGroup>>::type;

}  // namespace shardkit
