// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/comm/all_gather.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/schedule/schedule.hpp>

namespace shardkit::detail {

/// Every rank's values, by rank. They travel as doubles, as the norm's do, so that an engine needs nothing more for
/// them.
/// Order:   collective over the world; the host waits.
template <class Engine>
std::vector<double> gather_values(Context<Engine>& context, std::span<const double> mine, SourceLocation where,
                                  std::string_view what) {
    const auto& world = context.world();
    const EngineTable<Engine, double> given(context, mine);
    const auto gathered = EngineTable<Engine, double>::zeroed(context, mine.size() * world.size());
    const auto stream = context.compute_stream();  // in which the table was written
    all_gather(world, std::span<const double>(given.span()), gathered.span(), stream,
               {where, subject_of(world, what)});
    std::vector<double> all(gathered.size());
    Engine::Kernels::copy_out(stream, std::span<const double>(gathered.span()), std::span<double>(all));
    return all;
}

/// An operation as a whole number that a double holds: 4 bits of the act, 2 of the lane, 20 of the group, 26 of the
/// microbatch.
inline double packed(const Op& op) noexcept {
    const std::uint64_t bits = (std::uint64_t{op.microbatch} & 0x3FF'FFFFU) << 26U |
                               (std::uint64_t{op.group} & 0xF'FFFFU) << 6U |
                               static_cast<std::uint64_t>(op.lane) << 4U | static_cast<std::uint64_t>(op.act);
    return static_cast<double>(bits + 1);
}
/// Behind the last one.
inline constexpr double packed_end = 0;
inline Op unpacked(double value) noexcept {
    const auto bits = static_cast<std::uint64_t>(value) - 1;
    return {static_cast<Act>(bits & 15U), static_cast<std::uint32_t>(bits >> 6U & 0xF'FFFFU),
            static_cast<std::uint32_t>(bits >> 26U), static_cast<Lane>(bits >> 4U & 3U)};
}

/// Refuses schedules that are not the same on every rank, for groups in the same order. However many they are, they
/// are compared at once.
/// Order:   collective over the world; the host waits.
/// Cost:    24 bytes of each rank; where they differ 8 bytes an operation more.
/// @throws  UsageError, the same on every rank: two ranks that differ, and the first operation in which they do
template <class Engine>
void require_same_schedules(Context<Engine>& context, std::span<const Schedule> schedules,
                            std::span<const GroupDescription> groups, SourceLocation where) {
    const std::size_t ranks = context.world_size();
    if (ranks == 1) { return; }
    // Of each schedule its operations and an end.
    std::size_t length = schedules.size();
    Fnv fnv;
    for (const Schedule& schedule : schedules) {
        fnv.add(hash(schedule));
        length += schedule.size();
    }
    for (const GroupDescription& group : groups) { fnv.add(group.path); }
    constexpr std::size_t fields = 3;
    const std::array<double, fields> mine{static_cast<double>(fnv.hash >> 12U), static_cast<double>(schedules.size()),
                                          static_cast<double>(length)};
    const std::vector<double> all = gather_values(context, mine, where, "the ranks' schedules");
    const auto field = [&](std::size_t rank, std::size_t number) { return all[rank * fields + number]; };
    std::size_t other = 1;
    while (other < ranks && std::equal(all.data(), all.data() + fields, all.data() + other * fields)) { ++other; }
    if (other == ranks) { return; }
    if (field(0, 1) != field(other, 1)) {
        throw_usage_error(where, "follow: rank 0 has ", static_cast<std::size_t>(field(0, 1)),
                          " schedules to choose from, rank ", other, " has ",
                          static_cast<std::size_t>(field(other, 1)));
    }
    double longest = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) { longest = std::max(longest, field(rank, 2)); }
    std::vector<double> operations;
    for (const Schedule& schedule : schedules) {
        for (const Op& op : schedule.ops()) { operations.push_back(packed(op)); }
        operations.push_back(packed_end);
    }
    operations.resize(static_cast<std::size_t>(longest), packed_end);
    const std::vector<double> every = gather_values(context, operations, where, "the ranks' schedules");
    const auto of = [&](std::size_t rank, std::size_t i) { return every[rank * operations.size() + i]; };
    std::size_t at = 0;
    std::size_t schedule = 0;
    std::size_t began = 0;  // that schedule
    while (at < operations.size() && of(0, at) == of(other, at)) {
        if (of(0, at++) == packed_end) {
            ++schedule;
            began = at;
        }
    }
    if (at == operations.size()) {
        throw_usage_error(where, "follow: rank 0 and rank ", other,
                          " have the same operations for groups of other paths or in another order");
    }
    const auto text = [&](std::size_t rank) {
        return of(rank, at) == packed_end ? std::string("the end") : describe(unpacked(of(rank, at)), groups);
    };
    throw_usage_error(where, "follow: the schedules of the ranks differ in operation ", at - began,
                      schedules.size() > 1 ? concat(" of schedule ", schedule) : std::string(), ": rank 0 has ",
                      text(0), ", rank ", other, " has ", text(other));
}

}  // namespace shardkit::detail
