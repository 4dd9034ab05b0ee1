// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <shardkit/core/human_bytes.hpp>
#include <shardkit/schedule/peak.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/slot_plan.hpp>

namespace shardkit::schedule {

/// Returns a schedule as text, with one line for each operation: number, lane, act, microbatch, group, and the bytes
/// of leased buffers that exist during it; then the size of the arena and the hash. The text is the same on every
/// machine and fit for a golden file.
inline std::string table(const Schedule& schedule, std::span<const planner::GroupDescription> groups) {
    const detail::SlotPlan plan = detail::plan_slots(schedule, groups);
    const std::vector<std::size_t> held = detail::bytes_held(schedule, plan.slots);
    const auto text = [](std::string_view words) { return std::string(words); };
    std::string table;
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        const Op& op = schedule[i];
        std::array<char, 80> line{};
        std::snprintf(line.data(), line.size(), "  %4zu  %-8s %-10s %3u  %12s  ", i, text(name(op.lane)).c_str(),
                      text(name(op.act)).c_str(), op.microbatch, detail::human_bytes(ByteCount(held[i])).c_str());
        table += line.data();
        table += op.act == Act::norm        ? text("all groups")
                 : is_of_batch(op.act)      ? text("whole matrices")
                 : op.group < groups.size() ? text(groups[op.group].path)
                                            : detail::concat("group ", op.group);
        table += '\n';
    }
    std::array<char, 80> end{};
    std::snprintf(end.data(), end.size(), "  arena %zu bytes, hash %016llx\n", plan.arena_bytes,
                  static_cast<unsigned long long>(hash(schedule)));
    return table + end.data();
}

}  // namespace shardkit::schedule
