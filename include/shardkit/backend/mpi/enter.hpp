// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/call.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::mpi::detail {

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
