// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include <shardkit/comm/reduce_op.hpp>
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
/// Returns the bytes of a message to or from `peer`, or of a copy of its data.
template <class C>
constexpr std::uint64_t bytes_with_peer(const C& comm, std::size_t peer, std::uint64_t bytes) noexcept {
    return peer == comm.rank() ? 0 : bytes;
}

}  // namespace shardkit::detail

namespace shardkit::engine {

/// How data that every rank needs reaches the ranks of other hosts.
enum class Crossing : std::uint8_t {
    to_ranks,  ///< it is sent to each rank
    to_hosts,  ///< it is sent once to each host, whose ranks share it there
    ring       ///< it goes from neighbour to neighbour on a ring that visits one host after the other
};

/// No size from which on sums are exchanges.
inline constexpr std::size_t never_exchanged = std::numeric_limits<std::size_t>::max();

/// What the planner must know about an engine: where it moves or keeps more bytes than the verbs require. An engine
/// states its own as a member `traits`; the default is an engine that adds in place.
struct Traits {
    /// Sums travel in the arithmetic of their result (16-bit addends as fp32), not in the type of the addends.
    bool sums_travel_widened = false;
    /// The largest size of a rank's addends, in bytes, for which an all_reduce gathers them on every rank, which adds
    /// them itself.
    std::size_t gathered_all_reduce_addends = 0;
    /// How data travels between hosts: gathers, if a rank's part has more than `small_gather` bytes, and the results
    /// of sums. Addends are sent to the rank that adds them, or along the ring for Crossing::ring.
    Crossing gathers = Crossing::to_ranks;
    Crossing sums = Crossing::to_ranks;
    std::size_t small_gather = 0;
    /// Its reductions know ReduceOp::tree_sum.
    bool adds_along_trees = false;
    /// The smallest size of a rank's addends, in bytes, from which on a sum is an exchange of them as they are, as a
    /// tree_sum always is, instead of what `sums_travel_widened` and `sums` say.
    std::size_t exchanged_sums_from = never_exchanged;
    /// Sums of 16-bit addends travel as these and are rounded to 16 bits, whatever `sums_travel_widened` says.
    bool adds_16_bits = false;
    /// The memory of each rank in which verbs widen or collect what they add, in bytes. Of it `reduction_staging` are
    /// for reductions of gradients, which grow up to `most_reduction_staging` if a group needs more.
    std::size_t staging_bytes = 0;
    std::size_t reduction_staging = 0;
    std::size_t most_reduction_staging = 0;
    /// The memory that the engine takes of each rank whatever the model, beside staging memory: scratch of its
    /// streams, and memory for its rank's own small buffers, of fewer than `small_buffer_bytes`, so that these take
    /// no other.
    std::size_t own_bytes = 0;
    std::size_t small_buffer_bytes = 0;
    /// What the sizes of other buffers are rounded up to a multiple of.
    std::size_t buffer_granularity = 1;
    /// An estimate of the memory that the engine's library takes on each rank for a communicator of several ranks, in
    /// bytes; 0: none. Reductions beside gathers may have communicators of their own, or all may share one's memory.
    std::size_t communicator_bytes = 0;
    bool separates_reductions = false;
    bool shares_communicators = false;

    /// Returns the memory of a buffer of so many bytes; `local`: of the rank's own kernels alone.
    constexpr std::size_t buffer_bytes(std::size_t bytes, bool local = false) const noexcept {
        if (local && bytes < small_buffer_bytes) { return 0; }
        return (bytes + buffer_granularity - 1) / buffer_granularity * buffer_granularity;
    }

    constexpr bool gathers_all_reduce(std::size_t addends) const noexcept {
        return addends <= gathered_all_reduce_addends;
    }
    /// Returns the traits of a sum of that many bytes of addends on each rank, of elements of `each` bytes.
    constexpr Traits of_sum(ReduceOp op, std::uint64_t addends, std::size_t each) const noexcept {
        Traits its = *this;
        const bool exchanged = op == ReduceOp::tree_sum || addends >= exchanged_sums_from;
        its.adds_16_bits = adds_16_bits && !exchanged && each == 2;
        if (sums_travel_widened && exchanged) {
            its.sums_travel_widened = false;
            its.sums = Crossing::to_ranks;
        }
        if (its.adds_16_bits) { its.sums_travel_widened = false; }
        return its;
    }

    friend constexpr bool operator==(const Traits&, const Traits&) noexcept = default;
};

}  // namespace shardkit::engine

namespace shardkit {

namespace detail {
/// Returns the number of messages that follow each other in a ring of `ranks`. An all-reduce is a reduce-scatter and
/// an all-gather.
/// Source:  Thakur, Rabenseifner and Gropp 2005, section 4; Chan et al. 2007
constexpr double ring_messages(Verb verb, std::size_t ranks) noexcept {
    if (ranks <= 1) { return 0; }
    if (verb == Verb::send || verb == Verb::receive || verb == Verb::barrier || verb == Verb::split) { return 1; }
    return static_cast<double>(ranks - 1) * (verb == Verb::all_reduce ? 2 : 1);
}

}  // namespace detail

}  // namespace shardkit
