// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <stdexcept>
#include <string_view>

#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/layout/flat_layout.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/param/parameter_record.hpp>
#include <shardkit/param/tensor_part.hpp>

namespace shardkit {

/// One parameter of a group on one rank: its record, and its place. Code that works on a group uses a list of these,
/// whether the group's parameters are types or the entries of a TensorList.
struct PlacedParameter : ParameterRecord {
    TensorPart part;   ///< the part of the tensor on this rank of tp and, for experts, of ep
    IndexRange range;  ///< range of that part in the group's flat buffer
};

namespace detail {

/// What determines where a group's parameters lie.
struct Placing {
    std::size_t tp = 1;
    std::size_t tp_index = 0;
    std::size_t ep = 1;
    std::size_t ep_index = 0;
    std::size_t shards = 1;
    std::size_t alignment = 1;
    Packing packing = Packing::aligned;
};

/// Returns the part of a tensor of that shape, cut as the parameter, that a rank has.
constexpr TensorPart part_of(const ParameterRecord& cut_as, TensorShape shape, const Placing& placing) noexcept {
    if (cut_as.experts) { shape.extents[0] /= placing.ep; }
    const TensorPart part = cut_as.split_over_tp()
                                ? TensorPart(shape, cut_as.tp.dimension, placing.tp, placing.tp_index)
                                : TensorPart(shape);
    return cut_as.experts ? part.in_stack(placing.ep, placing.ep_index) : part;
}

/// Splits each parameter of the group at `path` over tp and, if it is a stack of experts, over ep, and places the
/// parts in its flat buffer.
/// @pre    the shapes were checked
/// @throws std::invalid_argument that names the parameter when tp or ep does not divide the extent that it splits;
///         std::length_error when the group is too large for its bytes to be counted
constexpr layout::FlatLayout place_parameters(std::string_view path, std::span<PlacedParameter> parameters,
                                              const Placing& placing, SourceLocation where) {
    for (PlacedParameter& p : parameters) {
        if (p.experts && p.shape.extents[0] % placing.ep != 0) {
            throw_invalid_argument(where, "'", path, "' parameter '", p.name, "' of shape ", p.shape.describe(),
                                   " is a stack of ", p.shape.extents[0], " experts over ep = ", placing.ep,
                                   ", expected a number of experts that ", placing.ep, " divides");
        }
        if (p.split_over_tp() && p.shape.extents[p.tp.dimension] % placing.tp != 0) {
            throw_invalid_argument(
                where, "'", path, "' parameter '", p.name, "' of shape ", p.shape.describe(),
                " is split along dimension ", p.tp.dimension, " over tp = ", placing.tp, ", expected an extent that ",
                placing.tp, " divides; rows of padding need not be in files: checkpoint::StoredAs::padding_rows");
        }
        p.part = part_of(p, p.shape, placing);
    }
    // A limit for buffers of 8-byte elements, whatever the group's types: counts of bytes never overflow.
    constexpr std::size_t most = std::numeric_limits<std::ptrdiff_t>::max() / 8;
    try {
        layout::FlatLayout layout(placing.shards, placing.alignment, placing.packing);
        for (PlacedParameter& p : parameters) { p.range = layout.append(p.part.numel()); }
        if (layout.buffer_numel() <= most) { return layout; }
    } catch (const std::length_error&) {}  // NOLINT(bugprone-empty-catch): reported in detail below
    const PlacedParameter* largest = &parameters[0];
    for (const PlacedParameter& p : parameters) {
        if (largest->part.numel() < p.part.numel()) { largest = &p; }
    }
    throw std::length_error(concat("'", path, "' parameter '", largest->name, "' of shape ",
                                   largest->shape.describe(), ": the group's elements, padded for ", placing.shards,
                                   " shards, are more than ", most, ": their bytes overflow 64 bits (", place(where),
                                   ")"));
}

/// Returns the range of the flat buffer that is summed over tp in one call: the gradients of tp::PartialSum and the
/// padding between them.
constexpr IndexRange tp_sum(std::span<const PlacedParameter> parameters, std::size_t tp) noexcept {
    IndexRange sum;
    if (tp == 1) { return sum; }
    for (const PlacedParameter& p : parameters) {
        if (p.tp.kind != TpPlacement::Kind::partial_sum) { continue; }
        if (sum.empty()) { sum.begin = p.range.begin; }
        sum.end = p.range.end;
    }
    return sum;
}

/// Returns whether any parameter is trainable.
constexpr bool trainable(std::span<const PlacedParameter> parameters) noexcept {
    for (const PlacedParameter& p : parameters) {
        if (!p.frozen) { return true; }
    }
    return false;
}

}  // namespace detail

}  // namespace shardkit
