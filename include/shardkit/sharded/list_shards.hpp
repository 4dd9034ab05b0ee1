// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/core/element.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/layout/boxes.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/layout/segments.hpp>
#include <shardkit/memory/stored_elements.hpp>
#include <shardkit/param/tensor_shape.hpp>
#include <shardkit/sharded/group_geometry.hpp>

namespace shardkit {

/// One contiguous run of elements that a rank holds of a parameter, its master weights or an optimizer state.
struct ShardInfo {
    std::string path;       ///< the group's path: "blocks.3"
    std::string parameter;  ///< "weight"
    std::string kind;       ///< "parameter", "master", "exp_avg", "exp_avg scales" of blocks of 8 bits, ...
    ElementType type{};
    TensorShape shape;  ///< shape of the whole tensor
    TensorShape part;   ///< shape of the rank's part under tp and ep: the whole tensor where it is not split
    IndexRange range;   ///< the run's elements in that part, row-major
    /// The run as boxes of the whole tensor; a box's range counts elements of the part.
    std::vector<layout::Box> boxes;
    IndexRange local;            ///< the run's elements in this rank's buffer
    const void* data = nullptr;  ///< the first element, in this rank's memory
    std::size_t replica = 0;     ///< 0 on exactly one of the ranks that hold this run, always current
    bool current = true;         ///< false for a copy that is stale since another rank's update
};

namespace detail {

/// A range `flat` of a group's flat order in a buffer of this rank. Where several ranks hold it, replica 0 is on a
/// rank with piece `owner`.
struct HeldRange {
    IndexRange flat;
    PiecePlace owner{};
    bool current = true;
};

/// Appends one ShardInfo for each parameter with elements in `held`, a part of `buffer`, or of those of which `only`
/// has not 0. The buffer is one of that extent and begins with element `origin` of the group's flat order.
inline void list_shards(const GroupGeometry& group, std::string_view kind, Extent extent,
                        const StoredElements& buffer, std::size_t origin, const HeldRange& held,
                        std::vector<ShardInfo>& list, const List<char>* only = nullptr) {
    for_each_segment(group.parameters.span(), held.flat, [&](Segment segment) {
        if (only != nullptr && (*only)[segment.parameter] == 0) { return; }
        ShardInfo& info = list.emplace_back();
        info.path = group.path;
        const PlacedParameter& parameter = group.parameters[segment.parameter];
        info.parameter = parameter.name;
        info.kind = kind;
        info.type = buffer.type();
        info.shape = parameter.shape;
        const TensorPart& part = parameter.part;
        info.part = part.shape();
        info.range = relative_to(segment.flat, parameter.range.begin);
        info.local = relative_to(segment.flat, origin);
        info.data = buffer.subspan(info.local.begin, info.local.size()).data();
        info.replica = group.replica(segment.parameter, extent, held.owner);
        info.current = held.current;
        layout::for_each_box(info.part, info.range, [&](const layout::Box& box) {
            info.boxes.push_back(box);
            if (box.rank == 0) { return; }
            info.boxes.back().offsets[part.dimension()] += part.first();
            info.boxes.back().offsets[0] += part.first_row();
        });
    });
}
/// Appends the ShardInfos of all of `buffer`.
inline void list_shards(const GroupGeometry& group, std::string_view kind, Extent extent,
                        const StoredElements& buffer, std::size_t origin, std::vector<ShardInfo>& list,
                        const List<char>* only = nullptr) {
    list_shards(group, kind, extent, buffer, origin, HeldRange{{origin, origin + buffer.size()}}, list, only);
}

}  // namespace detail

}  // namespace shardkit
