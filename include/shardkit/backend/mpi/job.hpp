// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/mpi/farewells.hpp>
#include <shardkit/backend/mpi/host.hpp>
#include <shardkit/backend/mpi/options.hpp>
#include <shardkit/backend/mpi/turns.hpp>
#include <shardkit/comm/record_files.hpp>

namespace shardkit::mpi::detail {

/// The state that all lanes of a World share: the options, the ranks of this host, which ranks have returned, and
/// whose turn it is to call MPI.
struct Job {
    explicit Job(const Options& given) : options(given) {}

    const Options options;
    Host host;
    Farewells farewells;
    Turns turns;
    shardkit::detail::RecordWriter* records = nullptr;  ///< the World's
};

}  // namespace shardkit::mpi::detail
