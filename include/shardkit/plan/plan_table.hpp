// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include <shardkit/detail/human_bytes.hpp>
#include <shardkit/mesh/axes_label.hpp>
#include <shardkit/plan/plan.hpp>

namespace shardkit {

/// The memory of one rank as a text table, a line a kind.
inline std::string memory_table(const MemoryPlan& plan) {
    const std::array<std::pair<std::string_view, ByteCount>, 8> rows{{{"parameters", plan.parameters},
                                                                      {"master", plan.master},
                                                                      {"gradients", plan.gradients},
                                                                      {"optimizer", plan.optimizer},
                                                                      {"gather buffers", plan.gather_buffers},
                                                                      {"gradient buffers", plan.gradient_buffers},
                                                                      {"reduce buffers", plan.reduce_buffers},
                                                                      {"total", plan.total()}}};
    std::string table;
    for (const auto& [kind, bytes] : rows) {
        std::array<char, 80> line{};
        std::snprintf(line.data(), line.size(), "  %-18.*s %14s\n", static_cast<int>(kind.size()), kind.data(),
                      detail::human_bytes(bytes).c_str());
        table += line.data();
    }
    return table;
}

/// The collectives of one step as a text table: verb, axes, calls, bytes moved per rank. `shard_group` is the
/// number of data-parallel ranks that share one copy, as the policy says.
inline std::string traffic_table(const TrafficPlan& plan, const AxisGrid& mesh, std::size_t shard_group,
                                 std::string_view shard_label = {}) {
    const AxisGrid split = mesh.split_axis(Dp::name, shard_group, DpReplicate::name, DpShard::name);
    const std::array<std::string, 5> labels{
        shard_label.empty() ? axes_label<Axes<DpShard>>(split) : std::string(shard_label),
        axes_label<Axes<DpReplicate, Cp>>(split), axes_label<DataAxes>(split), std::string(Tp::name), "world"};
    std::string table;
    for (const Verb verb : TrafficPlan::verbs) {
        for (const TrafficAxes axes : TrafficPlan::all_axes) {
            const PlannedTraffic& row = plan(verb, axes);
            if (row.calls == 0) { continue; }
            std::array<char, 120> line{};
            std::snprintf(line.data(), line.size(), "  %-15.*s %-18s %6llu calls %14s\n",
                          static_cast<int>(name(verb).size()), name(verb).data(),
                          labels[static_cast<std::size_t>(axes)].c_str(), static_cast<unsigned long long>(row.calls),
                          detail::human_bytes(row.moved).c_str());
            table += line.data();
        }
    }
    return table.empty() ? "  (nothing: every group has one rank)\n" : table;
}

}  // namespace shardkit
