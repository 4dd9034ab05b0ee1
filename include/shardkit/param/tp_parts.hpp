// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <shardkit/detail/concat.hpp>
#include <shardkit/param/shapes.hpp>
#include <shardkit/param/tensor_part.hpp>

namespace shardkit {

/// What rank `index` of `size` tp ranks holds of each parameter of a group.
/// @throws std::invalid_argument that names the parameter when `size` does not divide the extent that it splits
template <class Group>
constexpr std::array<TensorPart, Group::count> tp_parts(std::string_view path, const Shapes<Group>& shapes,
                                                        std::size_t size, std::size_t index) {
    const auto part = [&](std::size_t p) {
        const TpPlacement placement = Group::tp_placements[p];
        if (placement.kind != TpPlacement::Kind::split) { return TensorPart(shapes[p]); }
        if (shapes[p].extents[placement.dimension] % size != 0) {
            throw std::invalid_argument(detail::concat("'", path, "' parameter '", Group::names[p], "' of shape ",
                                                       shapes[p].describe(), " is split along dimension ",
                                                       placement.dimension, " over tp = ", size,
                                                       ", expected an extent that ", size, " divides"));
        }
        return TensorPart(shapes[p], placement.dimension, size, index);
    };
    return [&]<std::size_t... P>(std::index_sequence<P...>) {
        return std::array<TensorPart, Group::count>{part(P)...};
    }
    (std::make_index_sequence<Group::count>{});
}

}  // namespace shardkit
