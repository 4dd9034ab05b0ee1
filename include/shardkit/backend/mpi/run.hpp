// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <thread>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/engine.hpp>
#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/backend/mpi/options.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/rank/rank.hpp>

namespace shardkit::mpi {

namespace detail {

/// Prints the error of one rank and ends the job: its peers may wait for what will not come.
[[noreturn]] inline void abort_job(const World& world, const char* what) noexcept {
    const Group& everybody = world.world_group();
    std::fflush(stdout);
    std::fprintf(stderr, "shardkit: rank %zu of %zu failed: %s\n", everybody.rank, everybody.size(), what);
    std::fflush(stderr);
    // A launcher forwards the text by and by, and may drop what it has not read when the job is aborted: MPICH's
    // does. The ranks take turns: Open MPI's (4.1.4) reads freed memory where two abort at once.
    const std::size_t turn = std::min<std::size_t>(everybody.rank, 20);
    std::this_thread::sleep_for(std::chrono::milliseconds(200 + 50 * turn));
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    std::abort();
}

}  // namespace detail

/// Runs `f(rank)` in this process as one rank of `mesh`, over the processes of MPI_COMM_WORLD; every process of the
/// job makes the same call. MPI must be initialised: see mpi::Environment.
///
/// Errors:  a rank whose f throws prints the error and ends the whole job by MPI_Abort, with a non-zero status.
/// @throws  std::invalid_argument, on every rank, when the job has another number of processes than the mesh;
///          CommError as the constructor of World
template <class Sums = Exchange, class Mesh, class F>
void run(Mesh mesh, F&& f, RankOptions rank_options = {}, const Options& options = {},
         SourceLocation where = SourceLocation::current()) {
    static_assert(shardkit::detail::MeshRules<Mesh>::is_mesh);
    World world(MPI_COMM_WORLD, options, where);
    const std::size_t processes = world.world_group().size();
    if (mesh.size() != processes) {
        world.finish(where);
        throw_invalid_argument(where, "mesh ", mesh.grid().describe(), " has ", mesh.size(),
                               " ranks, but this MPI job has ", processes, " processes; start it with mpirun -n ",
                               mesh.size());
    }
    try {
        Rank<Engine<Sums>, Mesh> rank{
            mesh, Communicator<Sums>(world), rank_options, {{}, world.communication_stream()}, where};
        f(rank);
        world.drain();
    } catch (const std::exception& error) { detail::abort_job(world, error.what()); } catch (...) {
        detail::abort_job(world, "an exception that is no std::exception");
    }
    world.finish(where);
}

}  // namespace shardkit::mpi
