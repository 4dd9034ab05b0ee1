// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/core/block8.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/layout/placed_parameter.hpp>
#include <shardkit/param/tensor_part.hpp>
#include <shardkit/param/tensor_shape.hpp>
#include <shardkit/sharded/group_geometry.hpp>

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
