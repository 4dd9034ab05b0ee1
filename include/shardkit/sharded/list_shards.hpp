// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/layout/segments.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/sharded/shard_info.hpp>

namespace shardkit {

/// Appends one ShardInfo for every parameter that has elements in `buffer`, which holds elements
/// [origin, origin + size) of the group's flat order and is placed over the policy's shard ranks as `placement` says.
template <class T>
void list_shards(const GroupGeometry& group, std::string_view kind, Placement placement, std::span<const T> buffer,
                 std::size_t origin, std::vector<ShardInfo>& list) {
    for_each_segment(group.ranges, {origin, origin + buffer.size()}, [&](Segment segment) {
        ShardInfo info;
        info.path = group.path;
        info.parameter = group.names[segment.parameter];
        info.kind = kind;
        info.type = element_type_of<T>;
        info.shape = group.shapes[segment.parameter];
        const TensorPart& part = group.parts[segment.parameter];
        info.part = part.shape();
        info.range = relative_to(segment.flat, group.ranges[segment.parameter].begin);
        info.local = relative_to(segment.flat, origin);
        info.data = buffer.data() + info.local.begin;
        info.replica = group.replica(segment.parameter, placement);
        for_each_box(info.part, info.range, [&](const Box& box) {
            info.boxes.push_back(box);
            if (box.rank > 0) { info.boxes.back().offsets[part.dimension()] += part.first(); }
        });
        list.push_back(std::move(info));
    });
}

}  // namespace shardkit
