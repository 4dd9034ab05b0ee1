// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <shardkit/core/counts.hpp>
#include <shardkit/spi/placement.hpp>

namespace shardkit::detail {

/// Returns the bytes of a group's gradients that are zeroed where a sum begins.
constexpr ByteCount zeroed_bytes(const GroupDescription& group) noexcept {
    const std::size_t zeroed = group.buffer_numel - group.overwritten_numel;
    return ByteCount(group.trainable ? group.sources() * zeroed * group.sizes.gradient : 0);
}

/// Counts of what a step does with a group.
struct StepCounts {
    std::array<std::uint64_t, PlacementTable::most_collectives> calls{};  ///< one for each of the group's collectives
    std::uint64_t sums_begun = 0;                                         ///< how often the gradient buffer is zeroed
    bool takes_addend = false;

    constexpr void add(const GroupRows& rows, const Applied& applied, std::uint64_t times = 1) noexcept {
        const std::span<const CollectiveRow> all = rows.collectives();
        for (std::size_t i = 0; i < all.size(); ++i) {
            for (const CollectiveRow& called : applied.calls) { calls[i] += &called == &all[i] ? times : 0; }
        }
        sums_begun += applied.begins_sum ? times : 0;
        takes_addend = takes_addend || applied.takes_addend;
    }
};

/// Returns the counts of a plain step in steady state, in which each verb communicates when it is called.
constexpr StepCounts plain_step(const GroupRows& rows, std::uint64_t microbatches, std::size_t windows) {
    StepCounts counts;
    GroupStep its = at_rest(rows);
    std::uint64_t times = 1;
    const auto apply = [&](Act act) {
        const Applied applied = apply_act(its, act, rows);
        counts.add(rows, applied, times);
        its = act == Act::close && applied.gives_back ? given_back(applied.next) : applied.next;
    };
    const auto reduce_due = [&] {
        while (const auto act = due_reduction(its, rows)) { apply(*act); }
    };
    if (rows.slices > 0) { microbatches = rows.slices; }
    // The second microbatch stands for all later ones; of slices' reductions, two stand for a half of them each.
    for (std::uint64_t m = 0; m < std::min<std::uint64_t>(microbatches, 2); ++m) {
        times = m == 0 ? 1 : microbatches - 1;
        for (std::size_t w = 0; w < windows; ++w) {
            if (due_gather(its, rows)) { apply(Act::gather); }
            apply(Act::use);
            apply(Act::close);
        }
        if (!rows.trainable) { continue; }
        apply(Act::zero);
        apply(Act::add);
        if (rows.slices > 1) { times = microbatches / 2; }
        reduce_due();
    }
    if (its.added == 0) { return counts; }
    times = 1;
    its = apply_finish(its).next;
    reduce_due();
    return counts;
}

}  // namespace shardkit::detail
