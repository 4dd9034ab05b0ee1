// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <shardkit/layout/segments.hpp>
#include <shardkit/sharded/shard_info.hpp>
#include <shardkit/sharded/sharded_state.hpp>

namespace shardkit {

/// Appends one ShardInfo for every parameter that has elements in `buffer`, which holds elements
/// [origin, origin + size) of the group's flat order.
template <class State, class T>
void list_shards(State& state, std::string_view kind, std::span<const T> buffer, std::size_t origin,
                 std::size_t replica, std::vector<ShardInfo>& list) {
    for_each_segment(state.layout(), {origin, origin + buffer.size()}, [&](Segment segment) {
        ShardInfo info;
        info.path = state.path();
        info.parameter = State::Group::names[segment.parameter];
        info.kind = kind;
        info.type = element_type_of<T>;
        info.shape = state.shapes()[segment.parameter];
        info.global = relative_to(segment.flat, state.layout().offset(segment.parameter));
        info.local = relative_to(segment.flat, origin);
        info.data = buffer.data() + info.local.begin;
        info.replica = replica;
        for_each_box(info.shape, info.global, [&](const Box& box) { info.boxes.push_back(box); });
        list.push_back(std::move(info));
    });
}

}  // namespace shardkit
