// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

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

    /// @throws std::invalid_argument when tp does not divide what a parameter splits
    constexpr PlacedParameters(std::string_view path, const Shapes<Group>& whole, const AxisGrid& mesh,
                               std::size_t rank, std::size_t shards, std::size_t alignment,
                               Packing packing = Packing::aligned)
        : shapes(whole),
          tp(mesh.extent(Tp::name)),
          parts(tp_parts(path, whole, tp, mesh.coordinate(Tp::name, rank))),
          layout(numels(parts), shards, alignment, packing) {}

    /// Of the flat buffer, what is summed over tp in one call: the gradients of tp::PartialSum and the padding
    /// between.
    constexpr IndexRange tp_sum() const noexcept {
        if (tp == 1 || Group::partial_sums.empty()) { return {}; }
        return {layout.range(Group::partial_sums.begin).begin, layout.range(Group::partial_sums.end - 1).end};
    }

  private:
    static constexpr std::array<std::size_t, Group::count> numels(
        const std::array<TensorPart, Group::count>& parts) noexcept {
        std::array<std::size_t, Group::count> counts{};
        for (std::size_t p = 0; p < Group::count; ++p) { counts[p] = parts[p].numel(); }
        return counts;
    }
};

}  // namespace shardkit
