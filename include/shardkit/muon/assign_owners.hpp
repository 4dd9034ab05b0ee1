// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace shardkit::layout {

/// Gives each piece of work one owner among the ranks: the largest cost first, to the rank with the least so far
/// among those that may have it, the lowest of them where several have the least. The same on every rank, as it
/// depends on its arguments alone.
/// @param loads  one for each rank: what it has already; afterwards, with its new work
/// @param may_own  may_own(work, rank): whether the rank shares the work; true for at least one
/// @return the owner of each
/// @post  with work that every rank may own, and no loads before: a load is at most the mean plus the largest cost
/// Cost:    as many steps as costs times ranks
/// Source:  longest processing time first; Graham, SIAM J. Appl. Math. 17, 1969
template <class MayOwn>
std::vector<std::size_t> assign_owners(std::span<const std::uint64_t> costs, std::span<std::uint64_t> loads,
                                       const MayOwn& may_own) {
    std::vector<std::size_t> order(costs.size());
    for (std::size_t i = 0; i < order.size(); ++i) { order[i] = i; }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
    std::vector<std::size_t> owners(costs.size());
    for (const std::size_t work : order) {
        std::size_t owner = loads.size();
        for (std::size_t rank = 0; rank < loads.size(); ++rank) {
            if (may_own(work, rank) && (owner == loads.size() || loads[rank] < loads[owner])) { owner = rank; }
        }
        owners[work] = owner;
        loads[owner] += costs[work];
    }
    return owners;
}

}  // namespace shardkit::layout
