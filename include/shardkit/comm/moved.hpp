// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/cost.hpp>

namespace shardkit::engine {

/// Bytes that one call moves between a rank and its peers. A plain number stands for bytes that stay within a host.
struct Moved {
    std::uint64_t bytes = 0;
    std::uint64_t between_hosts = 0;  ///< the part of `bytes` between this rank and ranks of other hosts

    constexpr Moved() noexcept = default;
    constexpr Moved(std::uint64_t all, std::uint64_t crossing = 0) noexcept  // NOLINT(google-explicit-constructor)
        : bytes(all), between_hosts(crossing) {}

    friend constexpr bool operator==(const Moved&, const Moved&) noexcept = default;
};

/// The engine knows which ranks of a communicator share a host: those with equal `host_of(rank)`. Without it, nothing
/// counts as moved between hosts.
template <class C>
concept KnowsHosts = requires(const C comm, std::size_t rank) {
    { comm.host_of(rank) } -> std::convertible_to<std::size_t>;
};

}  // namespace shardkit::engine

namespace shardkit {

/// Returns planner::PlanOptions::ranks_per_host for a communicator: how many ranks each host has, if ranks lie on
/// hosts in order. Returns 0 if all are on one host, or in another order.
/// Cost:    the square of the ranks at most; no communication
template <class C>
constexpr std::size_t ranks_per_host(const C& comm) {
    if constexpr (engine::KnowsHosts<C>) {
        const std::size_t size = comm.size();
        std::size_t each = 1;
        while (each < size && comm.host_of(each) == comm.host_of(0)) { ++each; }
        for (std::size_t q = each; q < size; ++q) {
            for (std::size_t first = 0; first <= q; first += each) {
                if ((comm.host_of(q) == comm.host_of(first)) != (q / each == first / each)) { return 0; }
            }
        }
        return each < size ? each : 0;
    } else {
        return 0;
    }
}

namespace detail {

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

/// Returns the spread for a communicator's rank if every rank receives what it needs from the rank that has it.
template <class C>
constexpr HostSpread host_spread(const C& comm) {
    HostSpread spread;
    if constexpr (engine::KnowsHosts<C>) {
        for (std::size_t q = 0; q < comm.size(); ++q) {
            spread.to_ranks += comm.host_of(q) != comm.host_of(comm.rank()) ? 1U : 0U;
        }
    }
    return spread;
}
/// Returns the bytes of a message to or from `peer`, or of a copy of its data.
template <class C>
constexpr engine::Moved message_moved(const C& comm, std::size_t peer, std::uint64_t bytes) {
    if (peer == comm.rank()) { return 0; }
    if constexpr (engine::KnowsHosts<C>) {
        return {bytes, comm.host_of(peer) != comm.host_of(comm.rank()) ? bytes : 0};
    }
    return bytes;
}

// The following functions return the bytes that a rank moves, or the mean over the ranks of a mesh, in calls over
// `ranks` ranks. `hosts` belongs to that rank or mesh.

/// Returns what an all-gather moves; `bytes` are the parts of all ranks together.
constexpr engine::Moved gather_moved(std::uint64_t bytes, std::uint64_t ranks, const engine::Traits& engine = {},
                                     const HostSpread& hosts = {}) noexcept {
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

/// Returns what `call`, which gathers its payload over `comm`, moves if the engine does not report it.
template <class C>
constexpr engine::Moved gathered(const C& comm, const Call& call) {
    return gather_moved(call.payload, comm.size(), {}, host_spread(comm));
}

/// Returns what a reduce-scatter of `bytes` bytes of addends on each rank moves: every rank receives what it adds.
constexpr engine::Moved scatter_moved(std::uint64_t bytes, std::uint64_t ranks, const engine::Traits& engine = {},
                                      const HostSpread& hosts = {}) noexcept {
    const std::uint64_t from_peers = part_from_peers(bytes, ranks);
    if (engine.sums == engine::Crossing::ring) { return {from_peers, part_of(from_peers, hosts.links, hosts.ranks)}; }
    return {from_peers, part_of(bytes, hosts.to_ranks, ranks * hosts.ranks)};
}

/// Returns what an all-reduce of `addends` bytes on each rank into `result` bytes moves. It is reduced in parts that
/// are then gathered or, if it is small and the engine does so, its addends are gathered by every rank.
constexpr engine::Moved all_reduce_moved(std::uint64_t addends, std::uint64_t result, std::uint64_t ranks,
                                         const engine::Traits& engine = {}, const HostSpread& hosts = {}) noexcept {
    if (engine.gathers_all_reduce(addends)) {
        return {addends * (ranks - 1), part_of(addends, hosts.to_ranks, hosts.ranks)};
    }
    engine::Traits results = engine;
    results.gathers = engine.sums;
    results.small_gather = 0;
    const engine::Moved added = scatter_moved(addends, ranks, engine, hosts);
    const engine::Moved spread = gather_moved(result, ranks, results, hosts);
    return {added.bytes + spread.bytes, added.between_hosts + spread.between_hosts};
}

}  // namespace detail

}  // namespace shardkit
