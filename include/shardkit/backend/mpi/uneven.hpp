// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/host/memory.hpp>
#include <shardkit/backend/mpi/collective.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/host.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/backend/shared/verbs.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/comm/uneven_counts.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::mpi::detail {

using shardkit::detail::Counts;
using shardkit::detail::UnevenCounts;

/// What a rank shows the others of its host in an uneven all-to-all.
struct UnevenInput : shared::detail::UnevenInput {
    static constexpr std::size_t most = (carried_bytes - sizeof(shared::detail::UnevenInput)) / sizeof(std::size_t);
    std::array<std::size_t, most> begins;  ///< where the piece for each member of the host begins
};
static_assert(sizeof(UnevenInput) <= carried_bytes);

/// Throws an error with the first two ranks whose counts differ. Collective.
/// @throws CommError, always
[[noreturn]] inline void throw_counts_apart(const Call& call, const UnevenCounts& counts) {
    throw CommError("mpi", call.doing(),
                    shardkit::detail::disagreement(
                        shardkit::detail::concat(" in call ", call.sequence), counts, CallRecord(call, call.sequence),
                        [&](std::size_t rank) { return call.group.world_ranks[rank]; },
                        [&](const auto& value) { return call.lane.gather(call, value); }),
                    call.where);
}

/// Compares the counts of ranks that compare calls by messages, as Options::compare_calls says.
/// Cost:    with each_call an all-reduce of 8 bytes
/// @throws  CommError, on all ranks, when they differ
inline void compare_counts(const Call& call, const UnevenCounts& counts, std::uint64_t balance) {
    const CompareCalls when = call.world.options().compare_calls;
    if (when == CompareCalls::each_step) {
        call.channel.trace->add_counts(call.group.rank, counts);
    } else if (when == CompareCalls::each_call && sum(call, balance) != 0) {
        throw_counts_apart(call, counts);
    }
}

/// Moves an uneven all-to-all's pieces by messages, but for those between ranks of one host if `reads_neighbours`.
inline void exchange_unevenly(const Call& call, host::ConstMemory sent, host::Memory received,
                              const UnevenCounts& counts, bool reads_neighbours) {
    const Group& group = call.group;
    const auto piece = [&](auto all, const Counts& sizes, std::size_t q) {
        const std::size_t begin =
            std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(q), std::size_t{0});
        return all.part(begin, reads_neighbours && group.is_here(q) ? 0 : sizes[q]);
    };
    exchange_pieces(
        call, [&](std::size_t to) { return piece(sent, counts.sends, to); },
        [&](std::size_t from) { return piece(received, counts.receives, from); });
    if (reads_neighbours) { return; }
    const auto own = piece(sent, counts.sends, group.rank);
    host::detail::copy_elements(own.at, piece(received, counts.receives, group.rank).at, own.bytes());
}

/// Returns whether each rank of the host finds what every other one sends; the same on all of them.
inline bool sees_all_sent(const Seat& seat, const Round& round) noexcept {
    for (std::size_t q = 0; q < round.size(); ++q) {
        const UnevenInput& theirs = *round.input<UnevenInput>(q);
        if (theirs.bytes > 0 && seat.find(q, theirs.sent, theirs.bytes) == nullptr) { return false; }
    }
    return true;
}

/// Exchanges pieces of different sizes: ranks of one host that see each other's memory read it, all others send
/// messages.
inline void all_to_all_uneven(Call& call, host::ConstMemory sent, host::Memory received, const UnevenCounts& counts) {
    const Group& group = call.group;
    call.sequence = call.channel.enter();
    const std::uint64_t balance = shardkit::detail::count_balance(group.rank, counts);
    if (call.channel.block == nullptr) {
        if (group.size() > 1) {
            begin(call, true);
            compare_counts(call, counts, balance);
        }
        return exchange_unevenly(call, sent, received, counts, false);
    }
    const Seat seat(call);
    bool visible = seat.size() <= UnevenInput::most;
    UnevenInput shown{{sent.at, sent.bytes(), balance}, {}};
    for (std::size_t q = 0, begin = 0; visible && q < group.size(); begin += counts.sends[q++]) {
        if (group.is_here(q)) { shown.begins[group.homes[q].place] = begin; }
    }
    Round round(seat, call, &shown, sizeof shown);
    if (group.spans_hosts()) {
        visible = visible && agreed_but_for_statements(round) && sees_all_sent(seat, round);
        visible = begin(call, visible);
        compare_counts(call, counts, balance);
    } else {
        if (!round.agreed()) { round.leave_and_throw(); }
        std::uint64_t of_all = 0;
        for (std::size_t q = 0; q < round.size(); ++q) { of_all += round.input<UnevenInput>(q)->balance; }
        visible = visible && sees_all_sent(seat, round);
        if (of_all != 0) { throw_counts_apart(call, counts); }
    }
    if (!visible || group.spans_hosts()) { exchange_unevenly(call, sent, received, counts, visible); }
    if (!visible) { return; }
    shared::detail::all_to_all_uneven(round, group.rank, received, counts.receives, [&](std::size_t q) {
        if (!group.is_here(q)) { return static_cast<const std::byte*>(nullptr); }
        const UnevenInput& theirs = *round.input<UnevenInput>(group.homes[q].place);
        const auto* const all = static_cast<const std::byte*>(seat.at(group.homes[q].place, theirs.sent));
        return all == nullptr ? nullptr : all + theirs.begins[seat.rank()] * sent.size;
    });
    round.meet();
}

}  // namespace shardkit::mpi::detail
