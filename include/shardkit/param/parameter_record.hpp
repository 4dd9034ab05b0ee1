// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <shardkit/core/dynamic.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/param/attributes.hpp>
#include <shardkit/param/tensor_shape.hpp>

namespace shardkit {

/// One parameter of a group as a value, made from its type or from its entry in a TensorList.
struct ParameterRecord : ParameterAttributes {
    std::string_view name;  ///< refers to memory of the type or the list
    TensorShape shape;      ///< shape of the whole tensor

    constexpr bool split_over_tp() const noexcept { return tp.kind == TpPlacement::Kind::split; }
    /// Returns whether every rank of the mesh has the whole gradient of the whole parameter, as far as tp and ep go.
    constexpr bool whole_everywhere() const noexcept { return !experts && !split_over_tp(); }
};

namespace detail {

/// Checks that the group at `path` can have a parameter of this shape. `fixed` are the extents that its type fixes,
/// or `dynamic`; it is empty where there is no type.
/// @throws std::invalid_argument that names path and parameter for an extent of zero, one that differs from its
///         fixed value, or a shape whose element count overflows
constexpr void check_shape(std::string_view path, std::string_view name, const TensorShape& shape,
                           std::span<const std::size_t> fixed, SourceLocation where) {
    const auto refuse = [&](const std::string& what) {
        throw_invalid_argument(where, "'", path, "' parameter '", name, "': ", what);
    };
    for (std::size_t i = 0; i < shape.rank; ++i) {
        if (shape.extents[i] == 0) { refuse(concat("extent ", i, " is 0, expected at least 1")); }
        if (i < fixed.size() && fixed[i] != dynamic && shape.extents[i] != fixed[i]) {
            refuse(concat("extent ", i, " is ", shape.extents[i], ", expected ", fixed[i], " as in its type"));
        }
    }
    if (!shape.countable()) { refuse(concat("the element count of shape ", shape.describe(), " overflows 64 bits")); }
}

}  // namespace detail

}  // namespace shardkit
