// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <shardkit/plan/act.hpp>
#include <shardkit/plan/group_description.hpp>
#include <shardkit/policy/placement_table.hpp>

namespace shardkit::detail {

/// Bytes of one of a group's buffers on a rank.
constexpr std::size_t bytes_of(const BufferRow& row, const GroupDescription& group) noexcept {
    return group.numel_of(row.extent) * group.sizes.of(row.element);
}

/// A group's placement table, and the facts of it that every reader of a step asks for.
struct GroupRows : PlacementTable {
    bool trainable = false;
    bool gathers = false;            ///< windows may have to gather
    bool leases_full = false;        ///< into a buffer that exists while it is needed
    bool reduces_each = false;       ///< every microbatch; gradients lie in a leased buffer until then
    bool reduces_further = false;    ///< across replicas or tp, once every microbatch is in
    std::size_t full_bytes = 0;      ///< of the leased full copy, 0: none
    std::size_t gradient_bytes = 0;  ///< likewise
    std::size_t addend_bytes = 0;    ///< of what a later reduction takes beside the result, while it runs

    constexpr GroupRows() = default;
    constexpr explicit GroupRows(const GroupDescription& group)
        : PlacementTable(placement_table(group.policy, group.sizes, group.trainable)), trainable(group.trainable) {
        const auto leased = [&](Role role) {
            const BufferRow* const row = find(role);
            return row != nullptr && row->held == Held::leased ? bytes_of(*row, group) : 0;
        };
        full_bytes = leased(Role::gathered);
        gradient_bytes = leased(Role::gradients);
        addend_bytes = leased(Role::addend);
        leases_full = full_bytes > 0;
        reduces_each = gradient_bytes > 0;
        gathers = !called_by(Act::gather).empty();
        for (const CollectiveRow& row : called_by(Act::all_reduce)) {
            reduces_further = reduces_further || (row.extent == Extent::tp_sum ? group.tp > 1 && !group.tp_sum.empty()
                                                                               : group.replicas > 1);
        }
    }

    /// The collectives that an act of communication calls; of reductions those of the first or of a later one.
    constexpr std::span<const CollectiveRow> called_by(Act act, bool first = true) const noexcept {
        if (act == Act::gather) {
            const auto each = collectives(When::each_window);
            return each.empty() ? collectives(When::updated_window) : each;
        }
        const auto last = collectives(When::last_microbatch);
        std::size_t full = 0;  // rows that make partial gradients whole; behind them those that sum further
        while (full < last.size() && last[full].extent == Extent::full) { ++full; }
        if (act == Act::all_reduce) { return last.subspan(full); }
        if (!reduces_each) { return last.first(full); }
        return collectives(first ? When::first_microbatch : When::later_microbatch);
    }
    /// Whether a full copy is current when a step begins, in steady state and before any of its gathers: an update
    /// made the copies of what trains stale.
    constexpr bool rests_current() const noexcept { return !gathers || (!leases_full && !trainable); }
};

constexpr std::vector<GroupRows> rows_of(std::span<const GroupDescription> groups) {
    std::vector<GroupRows> rows;
    for (const GroupDescription& group : groups) { rows.emplace_back(group); }
    return rows;
}

}  // namespace shardkit::detail
