// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace shardkit {

/// Returns planner::PlanOptions::ranks_per_host for a communicator: how many ranks each host has, if ranks lie on
/// hosts in order. Returns 0 if all are on one host, or in another order.
/// Cost:    the square of the ranks at most; no communication
template <class C>
constexpr std::size_t ranks_per_host(const C& comm) {
    const std::size_t size = comm.size();
    std::size_t each = 1;
    while (each < size && comm.host_of(each) == comm.host_of(0)) { ++each; }
    for (std::size_t q = each; q < size; ++q) {
        for (std::size_t first = 0; first <= q; first += each) {
            if ((comm.host_of(q) == comm.host_of(first)) != (q / each == first / each)) { return 0; }
        }
    }
    return each < size ? each : 0;
}

}  // namespace shardkit
