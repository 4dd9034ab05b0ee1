// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::mpi::detail {

/// Calls f(offset, count) for consecutive pieces of [0, count) that MPI can count; not at all for none.
template <class F>
void for_each_piece(const Call& call, std::size_t count, F f) {
    const std::size_t most = call.world.options().message_elements;
    for (std::size_t at = 0; at < count; at += most) { f(at, static_cast<int>(std::min(most, count - at))); }
}

/// Sends `count` elements from `outgoing(q)` to every other rank q and receives as many from it to `incoming(q)`,
/// piece by piece: what all-gather and all-to-all are for pieces too long for MPI's counts.
template <class T, class Outgoing, class Incoming>
void exchange_pieces(const Call& call, std::size_t count, Outgoing outgoing, Incoming incoming) {
    const std::size_t ranks = call.group.size();
    constexpr int tag = 0;
    for_each_piece(call, count, [&](std::size_t at, int size) {
        std::size_t used = 0;
        const auto requests = call.world.requests();
        for (std::size_t step = 1; step < ranks; ++step) {
            const std::size_t from = (call.group.rank + ranks - step) % ranks;
            const std::size_t to = (call.group.rank + step) % ranks;
            call.check(MPI_Irecv(incoming(from) + at, size, datatype<T>(), static_cast<int>(from), tag,
                                 call.group.comm, &requests[used++]),
                       "MPI_Irecv");
            call.check(MPI_Isend(outgoing(to) + at, size, datatype<T>(), static_cast<int>(to), tag, call.group.comm,
                                 &requests[used++]),
                       "MPI_Isend");
        }
        call.world.await(call, requests.first(used));
    });
}

using shardkit::detail::CallRecord;

inline CallRecord record_of(const Call& call) noexcept {
    return {call.signature, call.where, call.subject, call.sequence};
}

/// Collective: every rank tells what it called. @throws CommError, always
[[noreturn]] inline void throw_disagreement(const Call& call) {
    const std::span<CallRecord> all = call.group.records<CallRecord>(call.group.size());
    all[call.group.rank] = record_of(call);
    constexpr int bytes = sizeof(CallRecord);
    call.world.complete(call, "MPI_Iallgather", [&](MPI_Request* request) {
        return MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all.data(), bytes, MPI_BYTE, call.group.comm,
                              request);
    });
    const auto other = std::find_if(all.begin(), all.end(), [&](const CallRecord& record) {
        return !(record.signature == all[0].signature && record.sequence == all[0].sequence);
    });
    const std::size_t second = other == all.end() ? 0 : static_cast<std::size_t>(other - all.begin());
    throw CommError("mpi", call.doing(),
                    shardkit::detail::concat("the ranks disagree in call ", call.sequence, ": rank ",
                                             call.group.world_ranks[0], " calls ", all[0].text(), ", rank ",
                                             call.group.world_ranks[second], " calls ", all[second].text()),
                    call.where);
}

/// The beginning of every collective: returns when all ranks of the group have made the same call.
/// Cost:    an all-reduce of 16 bytes, or nothing: see Options::compare_calls.
/// @throws  CommError, on all ranks, when the calls disagree; PeerError when a rank has returned
inline void enter(Call& call) {
    Group& group = call.group;
    call.sequence = group.calls++;
    if (group.size() == 1 || !call.world.options().compare_calls) { return; }
    const std::uint64_t own = shardkit::detail::call_hash(call.signature, call.sequence);
    group.digest = {own, ~own};
    call.world.complete(call, "MPI_Iallreduce", [&](MPI_Request* request) {
        return MPI_Iallreduce(MPI_IN_PLACE, group.digest.data(), 2, MPI_UINT64_T, MPI_BAND, group.comm, request);
    });
    // A bit that differs between two ranks is zero in both conjunctions.
    if ((group.digest[0] | group.digest[1]) != ~std::uint64_t{0}) { throw_disagreement(call); }
}

}  // namespace shardkit::mpi::detail
