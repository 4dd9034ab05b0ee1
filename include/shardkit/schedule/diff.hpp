// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <shardkit/core/counts.hpp>
#include <shardkit/core/human_bytes.hpp>
#include <shardkit/schedule/peak.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/simulate.hpp>

namespace shardkit {

/// An operation that two schedules have at different places, or one of them has.
struct ScheduleChange {
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    Op op;
    std::size_t from = none;  ///< its number in the first schedule
    std::size_t to = none;    ///< and in the second

    friend constexpr bool operator==(const ScheduleChange&, const ScheduleChange&) noexcept = default;
};

/// What makes one schedule out of another.
struct ScheduleDiff {
    std::vector<ScheduleChange> changes;  ///< by place in the second schedule; those that it lacks come last
    ByteCount arena_before;
    ByteCount arena_after;
};

/// The fewest operations to move, add and take away that make `b` of `a`; lanes are compared as well.
/// Cost:    the square of the operations at most; works in constant expressions
/// Source:  heaviest increasing subsequence: what keeps its order was not moved
constexpr ScheduleDiff diff(const Schedule& a, const Schedule& b, std::span<const GroupDescription> groups) {
    constexpr std::size_t none = ScheduleChange::none;
    std::vector<std::size_t> in_a = detail::filled(b.size(), none);  // b's operations, by their numbers in a
    std::vector<char> taken = detail::filled(a.size(), char{0});
    for (std::size_t j = 0; j < b.size(); ++j) {
        for (std::size_t i = 0; i < a.size(); ++i) {
            if (taken[i] == 0 && a[i] == b[j]) {
                in_a[j] = i;
                taken[i] = 1;
                break;
            }
        }
    }
    // Acts of the program weigh more than all communication: they stay where both schedules are of one program.
    const auto weight = [&](std::size_t j) { return is_of_program(b[j].act) ? b.size() + 1 : std::size_t{1}; };
    std::vector<std::size_t> length =
        detail::filled(b.size(), std::size_t{0});  // weight of the heaviest increasing sequence that ends here
    std::vector<std::size_t> before = detail::filled(b.size(), none);
    std::size_t last = none;
    for (std::size_t j = 0; j < b.size(); ++j) {
        if (in_a[j] == none) { continue; }
        length[j] = weight(j);
        for (std::size_t k = 0; k < j; ++k) {
            if (in_a[k] != none && in_a[k] < in_a[j] && length[k] + weight(j) > length[j]) {
                length[j] = length[k] + weight(j);
                before[j] = k;
            }
        }
        if (last == none || length[j] > length[last]) { last = j; }
    }
    std::vector<char> stays = detail::filled(b.size(), char{0});
    for (std::size_t j = last; j != none; j = before[j]) { stays[j] = 1; }
    ScheduleDiff found{{}, arena_bytes(a, groups), arena_bytes(b, groups)};
    for (std::size_t j = 0; j < b.size(); ++j) {
        if (stays[j] == 0) { found.changes.push_back({b[j], in_a[j], j}); }
    }
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (taken[i] == 0) { found.changes.push_back({a[i], i, none}); }
    }
    return found;
}

/// A line for each change, and the bytes: "  moved   12 -> 9   gather of 'blocks.1', microbatch 0".
inline std::string diff_table(const ScheduleDiff& diff, std::span<const GroupDescription> groups) {
    std::string table;
    const auto number = [](std::size_t n) {
        return n == ScheduleChange::none ? std::string("-") : std::to_string(n);
    };
    for (const ScheduleChange& change : diff.changes) {
        const char* const what = change.from == ScheduleChange::none ? "added"
                                 : change.to == ScheduleChange::none ? "left out"
                                                                     : "moved";
        std::array<char, 60> line{};
        std::snprintf(line.data(), line.size(), "  %-9s %4s -> %-4s  ", what, number(change.from).c_str(),
                      number(change.to).c_str());
        table += line.data() + describe(change.op, groups) + "\n";
    }
    if (diff.changes.empty()) { table = "  (no operation differs)\n"; }
    return table + detail::concat("  arena ", detail::human_bytes(diff.arena_before), " -> ",
                                  detail::human_bytes(diff.arena_after), "\n");
}
/// The same, and what it does to the time that the rank waits for communication.
inline std::string diff_table(const ScheduleDiff& diff, std::span<const GroupDescription> groups,
                              const StepTimes& before, const StepTimes& after) {
    std::array<char, 160> line{};
    std::snprintf(line.data(), line.size(), "  step %.3f -> %.3f ms, exposed %.3f -> %.3f ms\n", before.seconds * 1e3,
                  after.seconds * 1e3, before.exposed() * 1e3, after.exposed() * 1e3);
    return diff_table(diff, groups) + line.data();
}

}  // namespace shardkit
