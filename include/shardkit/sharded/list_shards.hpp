// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <shardkit/core/block8.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/layout/boxes.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/layout/placed_parameter.hpp>
#include <shardkit/layout/segments.hpp>
#include <shardkit/param/tensor_part.hpp>
#include <shardkit/param/tensor_shape.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/sharded/held_memory.hpp>

namespace shardkit::detail {

/// The geometry of a group's blocks of 8 bits: that of the group, with one element for each Block8::block of it. A
/// parameter's scales have its shape with fewer columns where blocks are parts of rows, and are a list otherwise.
inline GroupGeometry blocks_of(const GroupGeometry& group) {
    const auto blocks = [](IndexRange range) {
        return IndexRange{Block8::blocks(range.begin), Block8::blocks(range.end)};
    };
    GroupGeometry g;
    static_cast<GroupDescription&>(g) = group;
    g.path = group.path;
    g.table = group.table;
    g.buffer_numel = Block8::blocks(group.buffer_numel);
    g.shard_numel = Block8::blocks(group.shard_numel);
    g.shard_index = group.shard_index;
    g.replica_index = group.replica_index;
    g.tp_index = group.tp_index;
    g.ep_index = group.ep_index;
    g.own = blocks(group.own);
    g.piece = blocks(group.piece);
    g.updated = blocks(group.updated);
    for (const PlacedParameter& p : group.parameters) {
        PlacedParameter& of = g.parameters.emplace_back(p);
        TensorShape& shape = of.shape;
        if (shape.rank > 0 && shape.extents[shape.rank - 1] % Block8::block == 0) {
            shape.extents[shape.rank - 1] /= Block8::block;
        } else {
            shape = {};
            shape.rank = 1;
            shape.extents[0] = Block8::blocks(p.shape.numel());
        }
        const bool is_part = p.part.numel() != p.shape.numel();
        of.part = is_part ? part_of(p, shape, {g.tp, g.tp_index, g.ep, g.ep_index}) : TensorPart(shape);
        of.range = blocks(p.range);
    }
    return g;
}

}  // namespace shardkit::detail

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

/// Appends one ShardInfo for each parameter with elements in `held`. Of copies of what other ranks update there is
/// one for each rank's: replica 0 is its owner's, as only the owner updates it.
inline void list_shards(const GroupGeometry& of, const HeldMemory& held, std::vector<ShardInfo>& list) {
    const bool blocks = held.unit > 1;
    const GroupGeometry of_blocks = blocks ? blocks_of(of) : GroupGeometry{};
    const GroupGeometry& group = blocks ? of_blocks : of;
    const IndexRange all = blocks ? group.updated : held.flat;
    const auto add = [&](IndexRange flat, PiecePlace owner, bool current) {
        for_each_segment(group.parameters.span(), flat, [&](Segment segment) {
            if (!held.of.empty() && held.of[segment.parameter] == 0) { return; }
            ShardInfo& info = list.emplace_back();
            info.path = group.path;
            const PlacedParameter& parameter = group.parameters[segment.parameter];
            info.parameter = parameter.name;
            info.kind = concat(held.name(), held.ending());
            info.type = held.values.type();
            info.shape = parameter.shape;
            const TensorPart& part = parameter.part;
            info.part = part.shape();
            info.range = relative_to(segment.flat, parameter.range.begin);
            info.local = relative_to(segment.flat, all.begin);
            info.data = held.values.subspan(info.local.begin, info.local.size()).data();
            info.replica = group.replica(segment.parameter, held.extent, owner);
            info.current = current;
            layout::for_each_box(info.part, info.range, [&](const layout::Box& box) {
                info.boxes.push_back(box);
                if (box.rank == 0) { return; }
                info.boxes.back().offsets[part.dimension()] += part.first();
                info.boxes.back().offsets[0] += part.first_row();
            });
        });
    };
    if (held.copies == HeldMemory::Copies::none) { return add(all, {}, true); }
    for (std::size_t s = 0; s < group.shards; ++s) {
        if (held.extent == Extent::shard && s != group.shard_index) { continue; }
        for (std::size_t p = 0; p < group.pieces(); ++p) {
            const PiecePlace place{s, p};
            add(group.range_of(place), place, place == group.place() || held.copies == HeldMemory::Copies::current);
        }
    }
}

}  // namespace detail

}  // namespace shardkit
