// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>

#include <shardkit/core/human_bytes.hpp>
#include <shardkit/mesh/axes_label.hpp>
#include <shardkit/plan/plan.hpp>

namespace shardkit {

/// The memory of one rank as a text table, a line a kind.
inline std::string memory_table(const MemoryPlan& plan) {
    struct Row {
        std::string_view kind;
        ByteCount bytes;
    };
    const Row rows[] = {{"parameters", plan.parameters},         {"master", plan.master},
                        {"gradients", plan.gradients},           {"optimizer", plan.optimizer},
                        {"gather buffers", plan.gather_buffers}, {"gradient buffers", plan.gradient_buffers},
                        {"reduce buffers", plan.reduce_buffers}, {"total", plan.total()}};
    std::string table;
    for (const auto& [kind, bytes] : rows) {
        std::array<char, 80> line{};
        std::snprintf(line.data(), line.size(), "  %-18.*s %14s\n", static_cast<int>(kind.size()), kind.data(),
                      detail::human_bytes(bytes).c_str());
        table += line.data();
    }
    return table;
}

/// How communicators over `axes` are named in a rank's traffic log. `shard_group` is the number of data-parallel
/// ranks that share one copy, as the policy says.
inline std::string label(TrafficAxes axes, const AxisGrid& mesh, std::size_t shard_group) {
    const AxisGrid split = mesh.split_axis(Dp::name, shard_group, DpReplicate::name, DpShard::name);
    switch (axes) {
        case TrafficAxes::shards:
            return axes_label<Axes<DpShard>>(split);
        case TrafficAxes::replicas:
            return axes_label<Axes<DpReplicate, Cp>>(split);
        case TrafficAxes::data:
            return axes_label<DataAxes>(split);
        case TrafficAxes::tp:
            return axes_label<Axes<Tp>>(split);
        case TrafficAxes::cp:
            return axes_label<Axes<Cp>>(split);
        case TrafficAxes::world:
            return "world";
    }
    throw std::invalid_argument("label: no such TrafficAxes");
}

/// The collectives of one step as a text table: verb, axes, calls, bytes moved per rank. `shard_group` is the
/// number of data-parallel ranks that share one copy, as the policy says.
inline std::string traffic_table(const TrafficPlan& plan, const AxisGrid& mesh, std::size_t shard_group,
                                 std::string_view shard_label = {}) {
    std::string table;
    for (const Verb verb : TrafficPlan::verbs) {
        for (const TrafficAxes axes : TrafficPlan::all_axes) {
            const PlannedTraffic& row = plan(verb, axes);
            if (row.calls == 0) { continue; }
            const bool shards = axes == TrafficAxes::shards && !shard_label.empty();
            const std::string over = shards ? std::string(shard_label) : label(axes, mesh, shard_group);
            std::array<char, 120> line{};
            std::snprintf(line.data(), line.size(), "  %-15.*s %-18s %6llu calls %14s\n",
                          static_cast<int>(name(verb).size()), name(verb).data(), over.c_str(),
                          static_cast<unsigned long long>(row.calls), detail::human_bytes(row.moved).c_str());
            table += line.data();
        }
    }
    return table.empty() ? "  (nothing: every group has one rank)\n" : table;
}

}  // namespace shardkit
