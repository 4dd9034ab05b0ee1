// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include <shardkit/comm/traffic_log.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/param/attributes.hpp>
#include <shardkit/param/tensor_part.hpp>
#include <shardkit/param/tensor_shape.hpp>
#include <shardkit/sharded/list_shards.hpp>

namespace mesh_picture {

/// What a rank keeps while no window is open.
inline constexpr std::array<std::string_view, 4> kinds{"parameters", "gradients before reducing", "reduced gradients",
                                                       "optimizer states"};
/// What a training step calls, in order.
inline constexpr std::array<std::string_view, 6> calls{"unshard, forward", "unshard, backward", "add gradients",
                                                       "reduce",           "global_norm",       "optimizer step"};

struct ParameterFacts {
    std::string_view name;
    shardkit::TensorShape shape;
    shardkit::TpPlacement tp;
    shardkit::IndexRange flat;  ///< of a rank's part, within the flat buffer
};

struct RankFacts {
    std::vector<shardkit::TensorPart> parts;  ///< of each parameter, what the rank's place in tp gives it
    std::array<std::vector<shardkit::ShardInfo>, kinds.size()> held;
    std::array<std::vector<shardkit::TrafficLog::Entry>, calls.size()> traffic;  ///< of one step
};

/// What the ranks of a mesh said about themselves.
struct Facts {
    /// The mesh, with dp as dp_replicate and dp_shard, or as groups of experts see it.
    shardkit::AxisGrid grid{};
    std::vector<ParameterFacts> parameters;
    std::size_t buffer_numel = 0;  ///< flat elements of one tp rank, padding included
    std::size_t shards = 1;        ///< into which the policy cuts the buffer
    std::vector<RankFacts> ranks;

    std::size_t tp_of(std::size_t rank) const { return grid.coordinate("tp", rank); }
    std::size_t cp_of(std::size_t rank) const { return grid.coordinate("cp", rank); }
    std::size_t dp_of(std::size_t rank) const {
        const char* const axis = of_experts() ? "ep_dp" : "dp_shard";
        const std::size_t copy = grid.coordinate("dp_replicate", rank) * grid.extent(axis);
        return (copy + grid.coordinate(axis, rank)) * ep() + ep_of(rank);
    }
    bool of_experts() const { return grid.has("ep"); }
    std::size_t ep() const { return of_experts() ? grid.extent("ep") : 1; }
    std::size_t ep_of(std::size_t rank) const { return of_experts() ? grid.coordinate("ep", rank) : 0; }
    /// The number of the part of the parameters that tp and ep give a rank.
    std::size_t part_of(std::size_t rank) const { return ep_of(rank) * grid.extent("tp") + tp_of(rank); }
};

}  // namespace mesh_picture
