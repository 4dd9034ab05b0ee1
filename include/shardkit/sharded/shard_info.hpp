// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/core/element.hpp>
#include <shardkit/layout/boxes.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/param/tensor_shape.hpp>

namespace shardkit {

/// One run of elements that a rank holds of a parameter, its master copy or an optimizer state.
struct ShardInfo {
    std::string path;            ///< of the group: "blocks.3"
    std::string_view parameter;  ///< "weight"
    std::string_view kind;       ///< "parameter", "master", "exp_avg", ...
    ElementType type{};
    TensorShape shape;           ///< of the whole tensor
    TensorShape part;            ///< of what the rank's place in tp gives it: the whole tensor, or a part of it
    IndexRange range;            ///< elements of that part, row-major
    std::vector<Box> boxes;      ///< the same as boxes of the whole tensor; a box's range counts in the part
    IndexRange local;            ///< elements of this rank's buffer
    const void* data = nullptr;  ///< first element, in this rank's memory
    std::size_t replica = 0;     ///< 0 on exactly one of the ranks that hold the same run
};

}  // namespace shardkit
