// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/comm/verb.hpp>

namespace shardkit::detail {

/// Returns bytes * part / whole, rounded down.
constexpr std::uint64_t part_of(std::uint64_t bytes, std::uint64_t part, std::uint64_t whole) noexcept {
    return bytes / whole * part + bytes % whole * part / whole;
}
/// Returns the bytes that a ring or a direct exchange moves per rank: each of n ranks receives all but its own part.
constexpr std::uint64_t part_from_peers(std::uint64_t bytes, std::uint64_t ranks) noexcept {
    return part_of(bytes, ranks - 1, ranks);
}

}  // namespace shardkit::detail

namespace shardkit {

/// Says how what every rank is to have comes to the ranks of other hosts.
enum class Crossing : std::uint8_t {
    to_ranks,  ///< to each of them
    to_hosts,  ///< once to each host, whose other ranks read it there
    ring       ///< from neighbour to neighbour of a ring that goes through one host after the other
};

/// Holds what the planner must know of an engine: where it moves or keeps more bytes than the verbs themselves say.
/// An engine states its own as a member `traits`; the default is an engine that adds in place.
struct EngineTraits {
    /// Sums travel in the arithmetic of their result (16-bit addends as fp32), not in the addends' type.
    bool sums_travel_widened = false;
    /// Limits the addends of each rank, in bytes, up to which every rank gathers an all_reduce and adds all itself.
    std::size_t gathered_all_reduce_addends = 0;
    /// Says how data travels between hosts: what is gathered, where a rank's part is of more than `small_gather`
    /// bytes; and the addends, on a ring, and results of sums. Addends go to the rank that adds them, but for a ring.
    Crossing gathers = Crossing::to_ranks;
    Crossing sums = Crossing::to_ranks;
    std::size_t small_gather = 0;

    constexpr bool gathers_all_reduce(std::size_t addends) const noexcept {
        return addends <= gathered_all_reduce_addends;
    }

    friend constexpr bool operator==(const EngineTraits&, const EngineTraits&) noexcept = default;
};

namespace detail {
template <class Engine>
constexpr EngineTraits engine_traits() noexcept {
    if constexpr (requires { Engine::traits; }) {
        return Engine::traits;
    } else {
        return {};
    }
}

/// Returns the number of messages that follow each other in a ring of `ranks`: an all-reduce is a reduce-scatter and
/// an all-gather.
/// Source:  Thakur, Rabenseifner and Gropp 2005, section 4; Chan et al. 2007
constexpr double ring_messages(Verb verb, std::size_t ranks) noexcept {
    const double others = ranks > 1 ? static_cast<double>(ranks - 1) : 0;
    switch (verb) {
        case Verb::all_gather:
        case Verb::reduce_scatter:
        case Verb::all_to_all:
        case Verb::broadcast:
            return others;
        case Verb::all_reduce:
            return 2 * others;
        default:
            return ranks > 1 ? 1 : 0;
    }
}

}  // namespace detail

}  // namespace shardkit
