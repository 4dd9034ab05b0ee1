// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/mpi/arrivals.hpp>
#include <shardkit/backend/mpi/call_turns.hpp>
#include <shardkit/backend/mpi/host.hpp>
#include <shardkit/backend/mpi/options.hpp>
#include <shardkit/backend/mpi/returned_ranks.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/record_files.hpp>

namespace shardkit::mpi::detail {

/// The state that all lanes of a World share: the options, the journal of the verbs that are given to a stream, the
/// ranks of this host, which ranks have returned, and whose turn it is to call MPI.
struct Job {
    Job(const Options& given, std::size_t ranks) : options(given), returned(ranks) {}

    const Options options;
    engine::Journal journal;  ///< used by the rank's own thread
    Arrivals arrivals;        ///< while the World is made
    Host host;
    ReturnedRanks returned;
    CallTurns turns;
    shardkit::detail::RecordWriter* records = nullptr;  ///< the World's
};

}  // namespace shardkit::mpi::detail
