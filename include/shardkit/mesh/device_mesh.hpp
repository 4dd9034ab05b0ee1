// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <type_traits>

#include <shardkit/core/dynamic.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/axis_grid.hpp>

namespace shardkit {

/// The order in which the axes number the ranks, slowest first.
template <MeshAxis Slowest, MeshAxis Middle, MeshAxis Fastest>
struct RankOrder {
    using type = Axes<Slowest, Middle, Fastest>;
    static_assert(type::template contains<Dp> && type::template contains<Tp> && type::template contains<Cp>,
                  "RankOrder: name each of Dp, Tp and Cp once");
};

/// The ranks of a 3D-parallel job: data x tensor x context parallel. Each extent is static or `dynamic`.
/// Order:   rank = (dp_i * TP + tp_i) * CP + cp_i by default, as arange(world).reshape(dp, tp, cp) numbers them.
/// Cost:    none: pure arithmetic, usable in constant expressions.
template <std::size_t DP, std::size_t TP = 1, std::size_t CP = 1, class Order = RankOrder<Dp, Tp, Cp>>
class DeviceMesh {
    using OrderedAxes = typename Order::type;
    static_assert(DP > 0 && TP > 0 && CP > 0, "DeviceMesh<DP, TP, CP>: every extent must be at least 1");
    static_assert(std::numeric_limits<std::size_t>::max() / (DP == dynamic ? 1 : DP) / (TP == dynamic ? 1 : TP) >=
                      (CP == dynamic ? 1 : CP),
                  "DeviceMesh<DP, TP, CP>: the number of ranks overflows");

  public:
    static constexpr std::size_t static_dp = DP;
    static constexpr std::size_t static_cp = CP;

    constexpr DeviceMesh() noexcept requires(DP != dynamic && TP != dynamic && CP != dynamic) = default;

    /// Makes a mesh of these extents.
    /// @throws std::invalid_argument when an extent is zero, differs from its static value, or overflows
    constexpr explicit DeviceMesh(std::size_t dp, std::size_t tp = TP, std::size_t cp = CP,
                                  SourceLocation where = SourceLocation::current())
        : extents_{check<DP>("dp", dp, where), check<TP>("tp", tp, where), check<CP>("cp", cp, where)} {
        static_cast<void>(checked_grid(OrderedAxes{}, where));
    }

    constexpr std::size_t dp() const noexcept { return extents_[0]; }
    constexpr std::size_t tp() const noexcept { return extents_[1]; }
    constexpr std::size_t cp() const noexcept { return extents_[2]; }
    constexpr std::size_t size() const noexcept { return dp() * tp() * cp(); }

    template <class Axis>
    constexpr std::size_t extent() const noexcept {
        static_assert(std::is_same_v<Axis, Dp> || std::is_same_v<Axis, Tp> || std::is_same_v<Axis, Cp>,
                      "DeviceMesh::extent: the axes are Dp, Tp and Cp");
        return std::is_same_v<Axis, Dp> ? dp() : std::is_same_v<Axis, Tp> ? tp() : cp();
    }

    /// Returns the rank at these coordinates.
    /// @pre each coordinate is below its extent   @post coordinate<Axis>(rank(...)) gives it back
    constexpr std::size_t rank(std::size_t dp_index, std::size_t tp_index, std::size_t cp_index) const noexcept {
        const AxisGrid axes = grid();
        std::size_t rank = 0;
        for (std::size_t i = 0; i < axes.axis_count(); ++i) {
            const std::string_view name = axes.axis(i).name;
            const std::size_t index = name == Dp::name ? dp_index : name == Tp::name ? tp_index : cp_index;
            rank = rank * axes.axis(i).extent + index;
        }
        return rank;
    }

    /// Returns the coordinate of `rank` along Axis.
    /// @pre rank < size()
    template <MeshAxis Axis>
    constexpr std::size_t coordinate(std::size_t rank, SourceLocation where = SourceLocation::current()) const {
        return grid(where).coordinate(Axis::name, rank, where);
    }

    /// Returns the ranks that differ from `rank` only along AxisSet, for example Axes<Dp> or, flattened, Axes<Dp,
    /// Cp>.
    template <class AxisSet>
    constexpr RankGroup group(std::size_t rank, SourceLocation where = SourceLocation::current()) const {
        return grid(where).group(AxisSet::names, rank, where);
    }

    /// Returns the grid under this mesh: axes dp, tp and cp in rank order.
    constexpr AxisGrid grid(SourceLocation /*where*/ = SourceLocation::current()) const noexcept {
        return grid_of(OrderedAxes{});
    }

    /// Returns the extents as text, "4x2x1", always in the order dp x tp x cp.
    std::string describe() const { return detail::concat(dp(), "x", tp(), "x", cp()); }

  private:
    template <std::size_t Static>
    static constexpr std::size_t check(std::string_view axis, std::size_t given, SourceLocation where) {
        require_argument(given != dynamic, where, "DeviceMesh: ", axis, " is dynamic and was not given");
        require_argument(Static == dynamic || given == Static, where, "DeviceMesh: ", axis, " = ", given,
                         " given, expected ", Static, " as in the type");
        return given;
    }
    template <class... A>
    constexpr AxisGrid checked_grid(Axes<A...>, SourceLocation where) const {
        return AxisGrid({NamedAxis{A::name, extent<A>()}...}, where);
    }
    template <class... A>
    constexpr AxisGrid grid_of(Axes<A...>) const noexcept {
        return AxisGrid(std::array{NamedAxis{A::name, extent<A>()}...});
    }

    std::array<std::size_t, 3> extents_{DP, TP, CP};
};

DeviceMesh(std::size_t)->DeviceMesh<dynamic, 1, 1>;
DeviceMesh(std::size_t, std::size_t)->DeviceMesh<dynamic, dynamic, 1>;
DeviceMesh(std::size_t, std::size_t, std::size_t)->DeviceMesh<dynamic, dynamic, dynamic>;

}  // namespace shardkit
