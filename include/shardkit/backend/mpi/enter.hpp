// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/call.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::mpi {

namespace detail {

/// A hash of everything that ranks must say alike; equal calls have equal digests.
/// Source: Fowler, Noll, Vo: FNV-1a, by words
inline std::uint64_t digest(const Call& call) noexcept {
    const Signature& s = call.signature;
    const std::uint64_t words[] = {static_cast<std::uint64_t>(s.verb),
                                   static_cast<std::uint64_t>(s.in),
                                   static_cast<std::uint64_t>(s.out),
                                   static_cast<std::uint64_t>(s.op),
                                   s.count,
                                   s.root,
                                   call.sequence};
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    for (const std::uint64_t word : words) {
        hash = (hash ^ word) * 0x100000001b3ULL;
        hash ^= hash >> 32U;
    }
    return hash;
}

/// A call as it travels in an error's cause.
struct CallRecord {
    Signature signature{};
    std::uint64_t sequence = 0;
    std::uint32_t line = 0;
    char file[212] = {};

    CallRecord() = default;
    explicit CallRecord(const Call& call) noexcept
        : signature(call.signature), sequence(call.sequence), line(call.where.line) {
        std::strncpy(file, call.where.file, sizeof file - 1);
    }
    std::string text() const { return describe(signature, {file, line}); }
};

/// Collective: every rank tells what it called. @throws CommError, always
[[noreturn]] inline void throw_disagreement(const Call& call) {
    const std::span<CallRecord> all = call.group.records<CallRecord>(call.group.size());
    all[call.group.rank] = CallRecord(call);
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

}  // namespace detail

/// The beginning of every collective: returns when all ranks of the group have made the same call.
/// Cost:    an all-reduce of 16 bytes, or nothing: see Options::compare_calls.
/// @throws  CommError, on all ranks, when the calls disagree; PeerError when a rank has returned
inline void enter(Call& call) {
    Group& group = call.group;
    call.sequence = group.calls++;
    if (group.size() == 1 || !call.world.options().compare_calls) { return; }
    const std::uint64_t own = detail::digest(call);
    group.digest = {own, ~own};
    call.world.complete(call, "MPI_Iallreduce", [&](MPI_Request* request) {
        return MPI_Iallreduce(MPI_IN_PLACE, group.digest.data(), 2, MPI_UINT64_T, MPI_BAND, group.comm, request);
    });
    // A bit that differs between two ranks is zero in both conjunctions.
    if ((group.digest[0] | group.digest[1]) != ~std::uint64_t{0}) { detail::throw_disagreement(call); }
}

}  // namespace shardkit::mpi
