// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/split.hpp>

#include "../common/measure.hpp"
#include "../common/pin.hpp"
#include "options.hpp"
#include "rows.hpp"
#include "workloads.hpp"

namespace benchmarks {

/// The rank's sub-mesh over the axes asked for, and its ranks. Collective over the world.
/// @throws std::runtime_error when the world or the sub-mesh has other ranks than were asked for
inline shardkit::Communicator sub_mesh(shardkit::Rank& rank, const Options& options, Shape& shape) {
    std::vector<std::string_view> names;
    for (const std::size_t axis : options.axes) { names.push_back(axis_names[axis]); }
    const shardkit::RankGroup members = rank.grid().group(names, rank.rank());
    auto group = shardkit::split(rank.world(), members.color(), members.index(), options.axes_text());
    if (rank.world_size() != options.mesh.world() || group.size() != options.group_size()) {
        throw std::runtime_error("the engine gave " + std::to_string(rank.world_size()) + " ranks, and " +
                                 std::to_string(group.size()) + " along " + options.axes_text() + "; expected " +
                                 std::to_string(options.mesh.world()) + " and " +
                                 std::to_string(options.group_size()));
    }
    shape.rank = group.rank();
    shape.root = options.root;
    for (std::size_t i = 0; i < members.size(); ++i) { shape.world_ranks.push_back(members.member(i)); }
    return group;
}

/// Everything that the options ask for, on one rank of the mesh, beside plain copies. Collective over
/// the world.
inline void run_rank(shardkit::Rank& rank, const Options& options, const RowSink& sink) {
    if (options.pin) { pin_to(allowed_processors(), rank.rank()); }
    Shape shape;
    const auto group = sub_mesh(rank, options, shape);
    const auto measured = [&](const Row& row, Placement placement) {
        if (!row.facts.has(placement) || !options.wants(placement)) { return std::optional<Figure>(); }
        const auto workload = make_workload(rank, group, row.verb, row.type, placement, shape);
        const auto copied = static_cast<std::uint64_t>(static_cast<double>(row.bytes) * row.facts.copied(placement));
        return std::optional<Figure>(time_beside_copy(rank, options, row.bytes, copied, *workload));
    };
    for (Row& row : plan_rows(options, shape.ranks())) {
        shape.op = row.op;
        shape.piece = row.count;
        row.out_of_place = measured(row, Placement::out_of_place);
        row.in_place = measured(row, Placement::in_place);
        if (rank.rank() == 0) { sink(row); }
    }
}

}  // namespace benchmarks
