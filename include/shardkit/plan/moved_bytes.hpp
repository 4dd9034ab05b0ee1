// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <shardkit/comm/engine_traits.hpp>

namespace shardkit::planner {

/// Bytes that one call moves between a rank and its peers, as a plan counts them. A plain number stands for bytes
/// that stay within a host.
struct MovedBytes {
    std::uint64_t bytes = 0;
    std::uint64_t between_hosts = 0;  ///< the part of `bytes` between this rank and ranks of other hosts

    constexpr MovedBytes() noexcept = default;
    constexpr MovedBytes(std::uint64_t all,
                         std::uint64_t crossing = 0) noexcept  // NOLINT(google-explicit-constructor)
        : bytes(all), between_hosts(crossing) {}

    friend constexpr bool operator==(const MovedBytes&, const MovedBytes&) noexcept = default;
};

}  // namespace shardkit::planner

namespace shardkit::detail {

/// How much of an exchange between n ranks crosses hosts, in units of one rank's part: for one rank, or summed over
/// all ranks of a mesh.
struct HostSpread {
    std::uint64_t ranks = 1;     ///< number of ranks that are summed over
    std::uint64_t to_ranks = 0;  ///< parts that cross hosts if every rank receives them itself
    std::uint64_t to_hosts = 0;  ///< parts that cross hosts if one rank of a host receives them for all
    std::uint64_t links = 0;     ///< links between hosts, in a ring through all ranks, host by host

    /// Adds a group of `size` ranks, where rank i is on host_of(i) and ranks of one host are adjacent.
    template <class HostOf>
    constexpr void add_group(std::uint64_t size, const HostOf& host_of) {
        std::uint64_t hosts = 0;
        std::uint64_t here = 0;
        to_ranks += size * size;
        for (std::uint64_t i = 0; i < size; ++i) {
            if (i > 0 && host_of(i) == host_of(i - 1)) {
                ++here;
                continue;
            }
            to_ranks -= here * here;
            here = 1;
            ++hosts;
        }
        to_ranks -= here * here;
        if (hosts > 1) {
            to_hosts += size * (hosts - 1);
            links += hosts;
        }
    }

    friend constexpr bool operator==(const HostSpread&, const HostSpread&) noexcept = default;
};

// The following functions return the bytes that a rank moves, or the mean over the ranks of a mesh, in calls over
// `ranks` ranks. `hosts` belongs to that rank or mesh.

/// Returns what an all-gather moves; `bytes` are the parts of all ranks together.
constexpr planner::MovedBytes gather_moved(std::uint64_t bytes, std::uint64_t ranks,
                                           const engine::Traits& engine = {}, const HostSpread& hosts = {}) noexcept {
    const std::uint64_t from_peers = part_from_peers(bytes, ranks);
    switch (bytes / ranks > engine.small_gather ? engine.gathers : engine::Crossing::to_ranks) {
        case engine::Crossing::to_hosts:
            return {from_peers, part_of(bytes, hosts.to_hosts, ranks * hosts.ranks)};
        case engine::Crossing::ring:
            return {from_peers, part_of(from_peers, hosts.links, hosts.ranks)};
        case engine::Crossing::to_ranks:
            break;
    }
    return {from_peers, part_of(bytes, hosts.to_ranks, ranks * hosts.ranks)};
}

/// Returns what a reduce-scatter of `bytes` bytes of addends on each rank moves: every rank receives what it adds.
constexpr planner::MovedBytes scatter_moved(std::uint64_t bytes, std::uint64_t ranks,
                                            const engine::Traits& engine = {},
                                            const HostSpread& hosts = {}) noexcept {
    const std::uint64_t from_peers = part_from_peers(bytes, ranks);
    if (engine.sums == engine::Crossing::ring) { return {from_peers, part_of(from_peers, hosts.links, hosts.ranks)}; }
    return {from_peers, part_of(bytes, hosts.to_ranks, ranks * hosts.ranks)};
}

/// Returns what an all-reduce of `addends` bytes on each rank into `result` bytes moves. It is reduced in parts that
/// are then gathered or, if it is small and the engine does so, its addends are gathered by every rank.
constexpr planner::MovedBytes all_reduce_moved(std::uint64_t addends, std::uint64_t result, std::uint64_t ranks,
                                               const engine::Traits& engine = {},
                                               const HostSpread& hosts = {}) noexcept {
    if (engine.gathers_all_reduce(addends)) {
        return {addends * (ranks - 1), part_of(addends, hosts.to_ranks, hosts.ranks)};
    }
    engine::Traits results = engine;
    results.gathers = engine.sums;
    results.small_gather = 0;
    const planner::MovedBytes added = scatter_moved(addends, ranks, engine, hosts);
    const planner::MovedBytes spread = gather_moved(result, ranks, results, hosts);
    return {added.bytes + spread.bytes, added.between_hosts + spread.between_hosts};
}

}  // namespace shardkit::detail
