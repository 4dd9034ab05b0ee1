// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/forms.hpp>
#include <shardkit/param/parameter_record.hpp>

namespace shardkit::detail SHARDKIT_FORM {
/// Checks that tensors can be the parameters of the group at `path`: what Params and Shapes check, in part at compile
/// time.
/// @throws std::invalid_argument that names path and tensor, what was given and what was expected
void check_tensors(std::string_view path, std::span<const ParameterRecord> tensors, SourceLocation where);
}  // namespace shardkit::detail SHARDKIT_FORM

#ifndef SHARDKIT_COMPILED
#include <cstddef>
#include <map>

#include <shardkit/core/error.hpp>
#include <shardkit/param/shapes.hpp>

namespace shardkit::detail SHARDKIT_FORM {

SHARDKIT_CORE_INLINE void check_tensors(std::string_view path, std::span<const ParameterRecord> tensors,
                                        SourceLocation where) {
    const auto require = [&](bool holds, const auto&... text) { require_argument(holds, where, "'", path, text...); };
    require(!tensors.empty(), "': the list has no tensor, expected at least one");
    std::map<std::string_view, std::size_t> known;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const ParameterRecord& tensor = tensors[i];
        require(!tensor.name.empty(), "': tensor ", i, " has an empty name, expected one as 'weight'");
        const auto [first, is_new] = known.emplace(tensor.name, i);
        require(is_new, "': tensors ", first->second, " and ", i, " have the name '", tensor.name,
                "', expected distinct names");
        check_shape(path, tensor.name, tensor.shape, {}, where);
        if (tensor.split_over_tp() && tensor.tp.dimension >= tensor.shape.rank) {
            throw_invalid_argument(where, "'", path, "' parameter '", tensor.name, "' of shape ",
                                   tensor.shape.describe(), ": tp splits dimension ", tensor.tp.dimension,
                                   ", expected one that it has");
        }
        require(!tensor.experts || tensor.shape.rank > 0, "' parameter '", tensor.name,
                "': ep::Split of a scalar, expected a first dimension that counts experts");
        require(!tp_splits_stack(tensor), "' parameter '", tensor.name,
                "': tp splits dimension 0, along which experts are stacked, expected another one");
    }
    require(experts_apart(tensors),
            "': some tensors are ep::Split and some are not, expected a group of their own: gradients of experts are "
            "summed over other ranks");
    require(partial_sums_adjacent(tensors),
            "': tensors that are tp::PartialSum stand apart, expected one after the other: one call sums them");
}

}  // namespace shardkit::detail SHARDKIT_FORM
#endif
