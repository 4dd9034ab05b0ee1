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

#include <shardkit/core/constexpr_vector.hpp>
#include <shardkit/core/counts.hpp>
#include <shardkit/core/human_bytes.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/schedule/peak.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/schedule/simulate.hpp>

namespace shardkit::schedule {

/// An operation that is in only one of two schedules, or at different places in both.
struct Change {
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    Op op;
    std::size_t from = none;  ///< its index in the second one
    std::size_t to = none;    ///< and in the second

    friend constexpr bool operator==(const Change&, const Change&) noexcept = default;
};

/// The difference between two schedules.
struct Diff {
    std::vector<Change> changes;  ///< in the order of the second schedule; operations that it lacks come last
    ByteCount arena_before;
    ByteCount arena_after;
};

}  // namespace shardkit::schedule

namespace shardkit::detail {

/// Compares operations in an arbitrary but fixed order. Returns a number below, at or above 0.
constexpr int ordered(const schedule::Op& x, const schedule::Op& y) noexcept {
    const auto of = [](auto a, auto b) { return a < b ? -1 : a > b ? 1 : 0; };
    if (const int acts = of(x.act, y.act); acts != 0) { return acts; }
    if (const int groups = of(x.group, y.group); groups != 0) { return groups; }
    if (const int microbatches = of(x.microbatch, y.microbatch); microbatches != 0) { return microbatches; }
    return of(x.lane, y.lane);
}
/// Returns for each operation of `b` its index in `a`, if it is there. Equal operations are matched in order.
SHARDKIT_CONSTEXPR_VECTOR std::vector<std::size_t> numbers_in(const Schedule& a, const Schedule& b) {
    const auto sorted = [](const Schedule& schedule) {
        std::vector<std::size_t> numbers;
        for (std::size_t i = 0; i < schedule.size(); ++i) { numbers.push_back(i); }
        std::sort(numbers.begin(), numbers.end(), [&](std::size_t x, std::size_t y) {
            const int order = ordered(schedule[x], schedule[y]);
            return order != 0 ? order < 0 : x < y;
        });
        return numbers;
    };
    const std::vector<std::size_t> of_a = sorted(a);
    std::vector<std::size_t> found = filled(b.size(), schedule::Change::none);
    std::size_t at = 0;
    for (const std::size_t j : sorted(b)) {
        while (at < of_a.size() && ordered(a[of_a[at]], b[j]) < 0) { ++at; }
        if (at < of_a.size() && a[of_a[at]] == b[j]) { found[j] = of_a[at++]; }
    }
    return found;
}

}  // namespace shardkit::detail

namespace shardkit::schedule {

/// Returns the fewest operations to move, add and remove that turn `a` into `b`. Lanes are compared as well.
/// Cost:    the square of the operations; works in constant expressions
/// Source:  heaviest increasing subsequence: its operations keep their order and are not moved
/// @throws  std::invalid_argument when one of them has a group that is not described
SHARDKIT_CONSTEXPR_VECTOR Diff diff(const Schedule& a, const Schedule& b,
                                    std::span<const planner::GroupDescription> groups,
                                    SourceLocation where = SourceLocation::current()) {
    constexpr std::size_t none = Change::none;
    const std::vector<std::size_t> in_a = detail::numbers_in(a, b);
    std::vector<char> taken = detail::filled(a.size(), char{0});
    // An act of the program weighs more than all communication: it is not reported as moved if both schedules have
    // the same program.
    const auto weight = [&](std::size_t j) { return is_of_program(b[j].act) ? b.size() + 1 : std::size_t{1}; };
    std::vector<std::size_t> before = detail::filled(b.size(), none);
    std::vector<std::size_t> heaviest = detail::filled(b.size(), std::size_t{0});  // weight of the one ending here
    std::size_t last = none;
    for (std::size_t j = 0; j < b.size(); ++j) {
        if (in_a[j] == none) { continue; }
        taken[in_a[j]] = 1;
        for (std::size_t i = 0; i < j; ++i) {
            if (in_a[i] < in_a[j] && heaviest[i] > heaviest[j]) {
                heaviest[j] = heaviest[i];
                before[j] = i;
            }
        }
        heaviest[j] += weight(j);
        if (last == none || heaviest[j] > heaviest[last]) { last = j; }
    }
    std::vector<char> stays = detail::filled(b.size(), char{0});
    for (std::size_t j = last; j != none; j = before[j]) { stays[j] = 1; }
    Diff found{{}, arena_bytes(a, groups, where), arena_bytes(b, groups, where)};
    for (std::size_t j = 0; j < b.size(); ++j) {
        if (stays[j] == 0) { found.changes.push_back({b[j], in_a[j], j}); }
    }
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (taken[i] == 0) { found.changes.push_back({a[i], i, none}); }
    }
    return found;
}

/// Returns a line for each change, and the bytes: "  moved   12 -> 9   gather of 'blocks.1', microbatch 0".
inline std::string diff_table(const Diff& diff, std::span<const planner::GroupDescription> groups) {
    std::string table;
    const auto number = [](std::size_t n) { return n == Change::none ? std::string("-") : std::to_string(n); };
    for (const Change& change : diff.changes) {
        const char* const what = change.from == Change::none ? "added"
                                 : change.to == Change::none ? "left out"
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
/// Returns the same, and how the time changes that the rank waits for communication.
inline std::string diff_table(const Diff& diff, std::span<const planner::GroupDescription> groups,
                              const StepTimes& before, const StepTimes& after) {
    std::array<char, 160> line{};
    std::snprintf(line.data(), line.size(), "  step %.3f -> %.3f ms, exposed %.3f -> %.3f ms\n", before.seconds * 1e3,
                  after.seconds * 1e3, before.exposed() * 1e3, after.exposed() * 1e3);
    return diff_table(diff, groups) + line.data();
}

}  // namespace shardkit::schedule
