// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string_view>

#include <shardkit/detail/concat.hpp>
#include <shardkit/layout/flat_layout.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/param/tp_parts.hpp>

namespace shardkit {

/// A group's parameters on one rank of a mesh: their whole shapes, the part of each that its place in tp gives it,
/// and where those parts lie in the flat buffer.
template <class Group>
struct PlacedParameters {
    Shapes<Group> shapes;
    std::size_t tp;
    std::array<TensorPart, Group::count> parts;
    FlatLayout<Group::count> layout;

    /// @throws std::invalid_argument when a shape cannot be, or tp does not divide what a parameter splits;
    ///         std::length_error when the group is too large for its bytes to be counted
    constexpr PlacedParameters(std::string_view path, const Shapes<Group>& whole, const AxisGrid& mesh,
                               std::size_t rank, std::size_t shards, std::size_t alignment,
                               Packing packing = Packing::aligned)
        : shapes(checked_shapes(path, whole)),
          tp(mesh.extent(Tp::name)),
          parts(tp_parts(path, whole, tp, mesh.coordinate(Tp::name, rank))),
          layout(checked_layout(path, shapes, numels(parts), shards, alignment, packing)) {}

    /// Of the flat buffer, what is summed over tp in one call: the gradients of tp::PartialSum and the padding
    /// between.
    constexpr IndexRange tp_sum() const noexcept {
        if (tp == 1 || Group::partial_sums.empty()) { return {}; }
        return {layout.range(Group::partial_sums.begin).begin, layout.range(Group::partial_sums.end - 1).end};
    }

  private:
    static constexpr const Shapes<Group>& checked_shapes(std::string_view path, const Shapes<Group>& shapes) {
        shapes.check(path);
        return shapes;
    }
    /// Refuses what no buffer of 8-byte elements can hold, whatever the group's types: counts of bytes never
    /// overflow.
    static constexpr FlatLayout<Group::count> checked_layout(std::string_view path, const Shapes<Group>& shapes,
                                                             const std::array<std::size_t, Group::count>& numels,
                                                             std::size_t shards, std::size_t alignment,
                                                             Packing packing) {
        constexpr std::size_t most = std::numeric_limits<std::ptrdiff_t>::max() / 8;
        try {
            const FlatLayout<Group::count> layout(numels, shards, alignment, packing);
            if (layout.buffer_numel() <= most) { return layout; }
        } catch (const std::length_error&) {}  // NOLINT(bugprone-empty-catch): said with more words below
        const auto largest =
            static_cast<std::size_t>(std::max_element(numels.begin(), numels.end()) - numels.begin());
        throw std::length_error(detail::concat("'", path, "' parameter '", Group::names[largest], "' of shape ",
                                               shapes[largest].describe(), ": the group's elements, padded for ",
                                               shards, " shards, are more than ", most,
                                               ": their bytes overflow 64 bits"));
    }
    static constexpr std::array<std::size_t, Group::count> numels(
        const std::array<TensorPart, Group::count>& parts) noexcept {
        std::array<std::size_t, Group::count> counts{};
        for (std::size_t p = 0; p < Group::count; ++p) { counts[p] = parts[p].numel(); }
        return counts;
    }
};

}  // namespace shardkit
