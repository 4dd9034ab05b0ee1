// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/verbs/communicator.hpp>
#include <shardkit/verbs/make_call.hpp>

namespace shardkit {

/// Splits `comm`: ranks with the same color form a communicator, ordered by key, then by rank in `comm`. `axes` is
/// its name in errors and the traffic log.
/// Order:   collective over `comm`; the host waits.
/// Cost:    every rank sends its color and key, 16 bytes, to its peers; connecting them costs what the engine needs.
/// @throws  std::invalid_argument when color is 2^63 or more; CommError when the engine fails
inline Communicator split(const Communicator& comm, std::size_t color, std::size_t key, std::string_view axes,
                          SourceLocation where = SourceLocation::current()) {
    require_argument(color >> 63U == 0, where, "split over ", comm.axes(), ": color ", color,
                     ", expected less than 2^63");
    constexpr std::size_t wish = 2 * sizeof(std::uint64_t);
    const Call call{{.verb = Verb::split}, comm.size() * wish, where};
    if (comm.size() == 1) { return Communicator(comm.verbs()->split(color, key, axes, call)); }
    comm.label().journal.begin(comm.label(), call);
    const detail::OpenCall open(comm, call);
    Communicator made(comm.verbs()->split(color, key, axes, call));
    comm.label().journal.end(comm.label(), call, detail::part_from_peers(call.payload, comm.size()));
    return made;
}

}  // namespace shardkit
