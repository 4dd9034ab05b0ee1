// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/mesh/axes.hpp>

namespace shardkit {

template <std::size_t DP, std::size_t TP, std::size_t CP, class Order>
class DeviceMesh;

/// The ranks of a mesh that share all coordinates except those of some chosen axes, numbered by these axes (the last
/// one fastest). Arithmetic only, without a communicator.
class RankGroup {
  public:
    static constexpr std::size_t max_axes = 8;

    constexpr RankGroup() noexcept = default;

    /// Returns the world rank of member `index`.
    /// @pre index < size()   @post member(index()) is the rank that the group was made for
    constexpr std::size_t member(std::size_t index) const noexcept {
        std::size_t rank = base_;
        for (std::size_t a = axis_count_; a > 0; --a) {
            rank += index % extents_[a - 1] * strides_[a - 1];
            index /= extents_[a - 1];
        }
        return rank;
    }
    /// Returns the number of ranks in the group: the product of the chosen axes' extents.
    constexpr std::size_t size() const noexcept { return size_; }
    /// Returns this rank's number in the group.
    constexpr std::size_t index() const noexcept { return index_; }
    /// Returns a number that all members share and no other group of the same axes has: the rank of member 0.
    constexpr std::size_t color() const noexcept { return base_; }

    /// Returns whether both have the same members in the same order.
    friend constexpr bool operator==(const RankGroup& a, const RankGroup& b) noexcept {
        if (a.size_ != b.size_) { return false; }
        for (std::size_t i = 0; i < a.size_; ++i) {
            if (a.member(i) != b.member(i)) { return false; }
        }
        return true;
    }

  private:
    friend class AxisGrid;

    std::array<std::size_t, max_axes> extents_{};
    std::array<std::size_t, max_axes> strides_{};
    std::size_t axis_count_ = 0;
    std::size_t base_ = 0;
    std::size_t size_ = 1;
    std::size_t index_ = 0;
};

/// One axis of a grid: its name and its number of ranks.
struct NamedAxis {
    std::string_view name;
    std::size_t extent = 1;
};

/// The ranks on a list of named axes, slowest first: the arithmetic of every mesh. Rank order is row-major, as
/// arange(size).reshape(extents) numbers it. Names must outlive the grid (string literals do). An axis that is made
/// of parts of two others, as `ep` of dp and cp, is listed twice under its name; its extent is the product.
class AxisGrid {
  public:
    static constexpr std::size_t max_axes = RankGroup::max_axes;

    /// Makes a grid of these axes.
    /// @throws std::invalid_argument for an extent of zero, a name given twice, more than max_axes axes, or a product
    ///         of extents that overflows
    constexpr AxisGrid(std::initializer_list<NamedAxis> axes, SourceLocation where = SourceLocation::current()) {
        for (const NamedAxis& axis : axes) { append(axis, where); }
    }

    constexpr std::size_t axis_count() const noexcept { return count_; }
    constexpr const NamedAxis& axis(std::size_t i) const noexcept { return axes_[i]; }

    /// Returns the number of ranks: the product of all extents.
    constexpr std::size_t size() const noexcept {
        std::size_t product = 1;
        for (std::size_t i = 0; i < count_; ++i) { product *= axes_[i].extent; }
        return product;
    }

    constexpr bool has(std::string_view name) const noexcept { return find(name) < count_; }
    /// Returns the number of ranks along an axis.
    /// @throws std::invalid_argument when there is no such axis
    constexpr std::size_t extent(std::string_view name, SourceLocation where = SourceLocation::current()) const {
        const std::size_t first = index_of(name, where);
        std::size_t product = axes_[first].extent;
        for (std::size_t i = first + 1; i < count_; ++i) { product *= axes_[i].name == name ? axes_[i].extent : 1; }
        return product;
    }
    /// Returns the number of ranks that share the experts of a layer; 1 for a mesh without them.
    constexpr std::size_t experts() const noexcept { return experts_; }

    /// Returns the distance of two ranks that differ by one along axis `i`.
    constexpr std::size_t stride(std::size_t i) const noexcept {
        std::size_t product = 1;
        for (std::size_t a = i + 1; a < count_; ++a) { product *= axes_[a].extent; }
        return product;
    }

    /// Returns the coordinate of `rank` along an axis.
    /// @pre rank < size()   @post rank is the sum over axes of coordinate * stride
    constexpr std::size_t coordinate(std::string_view name, std::size_t rank,
                                     SourceLocation where = SourceLocation::current()) const {
        std::size_t all = 0;
        for (std::size_t i = index_of(name, where); i < count_; ++i) {
            if (axes_[i].name == name) { all = all * axes_[i].extent + rank / stride(i) % axes_[i].extent; }
        }
        return all;
    }

    /// Returns the ranks that share all coordinates with `rank` except those of `names`, numbered by `names` (slowest
    /// first, whatever their order in the grid).
    /// @throws std::invalid_argument when there is no such axis or rank, or an axis is given twice
    constexpr RankGroup group(std::span<const std::string_view> names, std::size_t rank,
                              SourceLocation where = SourceLocation::current()) const {
        if (rank >= size()) { throw_invalid_argument(where, "mesh ", describe(), ": no rank ", rank); }
        RankGroup group;
        group.base_ = rank;
        std::array<bool, max_axes> taken{};
        for (const std::string_view name : names) {
            for (std::size_t i = index_of(name, where); i < count_; ++i) {
                if (axes_[i].name != name) { continue; }
                if (taken[i]) {
                    throw_invalid_argument(where, "mesh ", describe(), ": axis ", name, " given twice for one group");
                }
                taken[i] = true;
                const std::size_t here = rank / stride(i) % axes_[i].extent;
                group.extents_[group.axis_count_] = axes_[i].extent;
                group.strides_[group.axis_count_] = stride(i);
                ++group.axis_count_;
                group.base_ -= here * stride(i);
                group.index_ = group.index_ * axes_[i].extent + here;
                group.size_ *= axes_[i].extent;
            }
        }
        return group;
    }

    /// Returns the same ranks with axis `name` split into two: `outer` (slow), and `inner` with `inner_extent` ranks.
    /// @throws std::invalid_argument when inner_extent does not divide the axis
    constexpr AxisGrid split_axis(std::string_view name, std::size_t inner_extent, std::string_view outer,
                                  std::string_view inner, SourceLocation where = SourceLocation::current()) const {
        const std::size_t at = index_of(name, where);
        if (inner_extent == 0 || axes_[at].extent % inner_extent != 0) {
            throw_invalid_argument(where, "mesh ", describe(), ": groups of ", inner_extent, " do not divide ", name,
                                   " = ", axes_[at].extent);
        }
        AxisGrid grid({}, where);
        for (std::size_t i = 0; i < count_; ++i) {
            if (i == at) {
                grid.append({outer, axes_[i].extent / inner_extent}, where);
                grid.append({inner, inner_extent}, where);
            } else {
                grid.append(axes_[i], where);
            }
        }
        grid.experts_ = experts_;
        return grid;
    }
    /// Returns the same ranks, `experts` of which share the experts of a layer. ExpertMesh checks the number.
    constexpr AxisGrid with_experts(std::size_t experts) const noexcept {
        AxisGrid grid = *this;
        grid.experts_ = experts;
        return grid;
    }

    /// Returns the axes of a mesh as groups of experts see it, where `shard_group` ranks of dp share one copy: the
    /// ranks of dp and cp are dp_replicate x ep_dp x ep, and tp is as it was. With cp above 1, ep takes ranks of cp
    /// first.
    /// @throws std::invalid_argument when shard_group does not divide dp, or ep the ranks of a copy
    constexpr AxisGrid split_experts(std::size_t shard_group,
                                     SourceLocation where = SourceLocation::current()) const {
        const std::size_t dp = extent(Dp::name);
        const std::size_t cp = extent(Cp::name);
        const std::size_t of_cp = experts_ < cp ? experts_ : cp;
        const std::size_t of_dp = experts_ / of_cp;
        if (shard_group == 0 || dp % shard_group != 0 || shard_group % of_dp != 0 || cp % of_cp != 0) {
            throw_invalid_argument(where, "mesh ", describe(), ": ep = ", experts_,
                                   " does not divide the data ranks of one copy, ", shard_group, " of dp = ", dp,
                                   " x cp = ", cp);
        }
        AxisGrid grid({}, where);
        const auto add = [&](NamedAxis axis) { grid.axes_[grid.count_++] = axis; };
        for (std::size_t i = 0; i < count_; ++i) {
            if (axes_[i].name == Dp::name) {
                add({DpReplicate::name, dp / shard_group});
                add({EpDp::name, shard_group / of_dp});
                add({Ep::name, of_dp});
            } else if (axes_[i].name == Cp::name && cp > 1) {
                add({EpDp::name, cp / of_cp});
                add({Ep::name, of_cp});
            } else {
                add(axes_[i]);
            }
        }
        return grid;
    }

    /// Returns the axes as text: "dp=4 tp=2 cp=1"; with experts, "dp=4 tp=2 cp=1, experts over ep=2".
    std::string describe() const {
        std::string text;
        for (std::size_t i = 0; i < count_; ++i) {
            detail::append(text, i == 0 ? "" : " ", axes_[i].name, "=", axes_[i].extent);
        }
        if (experts_ > 1) { detail::append(text, ", experts over ep=", experts_); }
        return text;
    }

  private:
    template <std::size_t, std::size_t, std::size_t, class>
    friend class DeviceMesh;

    /// Makes a grid of axes that were already checked.
    /// @pre the other constructor accepts the axes
    template <std::size_t N>
    constexpr explicit AxisGrid(const std::array<NamedAxis, N>& axes) noexcept : count_(N) {
        for (std::size_t i = 0; i < N; ++i) { axes_[i] = axes[i]; }
    }

    constexpr void append(NamedAxis axis, SourceLocation where) {
        require_argument(count_ != max_axes, where, "mesh: more than 8 axes");
        require_argument(axis.extent != 0, where, "mesh: axis ", axis.name, " has extent 0, expected at least 1");
        require_argument(!has(axis.name), where, "mesh: axis ", axis.name, " given twice");
        require_argument(axis.extent <= std::numeric_limits<std::size_t>::max() / size(), where, "mesh: axis ",
                         axis.name, " = ", axis.extent, " makes the number of ranks overflow");
        axes_[count_++] = axis;
    }
    constexpr std::size_t find(std::string_view name) const noexcept {
        std::size_t i = 0;
        while (i < count_ && axes_[i].name != name) { ++i; }
        return i;
    }
    constexpr std::size_t index_of(std::string_view name, SourceLocation where) const {
        const std::size_t i = find(name);
        if (i == count_) { throw_invalid_argument(where, "mesh ", describe(), ": no axis ", name); }
        return i;
    }

    std::array<NamedAxis, max_axes> axes_{};
    std::size_t count_ = 0;
    std::size_t experts_ = 1;
};

/// Returns the axes along which ranks over `axes` differ, under the names that errors, logs and plans use. Axes of
/// extent 1 are left out. A data-parallel axis that is not split, or whose halves are both listed, is "dp". On
/// dp_replicate=1 dp_shard=4 cp=2, DataAxes are "dp" and "cp". Axes of experts keep their names.
constexpr AxisNames named_axes(const AxisGrid& grid, const AxisNames& axes,
                               SourceLocation where = SourceLocation::current()) {
    const bool split =
        grid.has(DpShard::name) && grid.extent(DpReplicate::name) > 1 && grid.extent(DpShard::name) > 1;
    const bool both = axes.contains(DpReplicate::name) && axes.contains(DpShard::name);
    AxisNames named;
    for (std::string_view name : axes) {
        if (grid.extent(name, where) == 1) { continue; }
        const bool half = name == DpReplicate::name || name == DpShard::name;
        if (half && (!split || both) && !grid.has(EpDp::name)) { name = Dp::name; }
        if (!named.contains(name)) { named.add(name); }
    }
    return named;
}

/// Returns the names in one line: "dp x cp"; "self" if there are none.
inline std::string joined(const AxisNames& names) {
    std::string text;
    for (const std::string_view name : names) {
        if (!text.empty()) { text += " x "; }
        text += name;
    }
    return text.empty() ? "self" : text;
}

/// Returns the name of a set of axes in errors, logs and plans; "self" for a group of one rank.
inline std::string axes_label(const AxisGrid& grid, const AxisNames& axes,
                              SourceLocation where = SourceLocation::current()) {
    return joined(named_axes(grid, axes, where));
}

}  // namespace shardkit
