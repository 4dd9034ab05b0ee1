// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/communicator.hpp>
#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/backend/mpi/options.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/rank/rank.hpp>

namespace shardkit::mpi {

/// Runs `f(rank)` in this process as one rank of `mesh`, over the processes of MPI_COMM_WORLD. Every process of the
/// job must make the same call. MPI must be initialised: see mpi::Environment.
///
/// Errors:  a rank whose f throws, or which waits at the end for another one in vain, prints the error and ends the
///          whole job with MPI_Abort and a non-zero status.
/// @throws  std::invalid_argument, on every rank, when the job has another number of processes than the mesh;
///          CommError as the constructor of World
template <shardkit::detail::MayBeMesh Mesh, class F>
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
        {
            MeshRank<Mesh> rank{mesh, world.communicator(), rank_options, world.streams(), where};
            if constexpr (shardkit::detail::BodyRules<F, MeshRank<Mesh>>::takes_rank) { f(rank); }
            world.drain();
        }
        world.finish(where);
    } catch (...) {
        world.record_exception();
        const detail::Group& everybody = world.world_group();
        detail::abort_job(everybody.rank, everybody.size());
    }
}

}  // namespace shardkit::mpi
