// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/mpi/options.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/rank/rank.hpp>

namespace shardkit::mpi::detail SHARDKIT_FACE {
/// Runs the body in this process, as a rank of MPI_COMM_WORLD's.
void run_rank(const AxisGrid& grid, const shardkit::detail::RankBody& body, const Options& options,
              SourceLocation where);
}  // namespace SHARDKIT_FACE

namespace shardkit::mpi SHARDKIT_FACE {

/// Runs `f(rank)` in this process as one rank of `mesh`, over the processes of MPI_COMM_WORLD. Every process of the
/// job must make the same call. MPI must be initialised: see mpi::Environment. In the compiled form the program links
/// compiled_mpi.hpp's core.
///
/// Errors:  a rank whose f throws, or which waits at the end for another one in vain, prints the error and ends the
///          whole job with MPI_Abort and a non-zero status.
/// @throws  std::invalid_argument, on every rank, when the job has another number of processes than the mesh;
///          CommError as the constructor of World
template <shardkit::detail::MayBeMesh Mesh, class F>
void run(Mesh mesh, F&& f, RankOptions rank_options = {}, const Options& options = {},
         SourceLocation where = SourceLocation::current()) {
    if constexpr (shardkit::detail::MeshRules<Mesh>::is_mesh) {
        const shardkit::detail::UserBody<MeshRank<Mesh>, F> body(mesh, f, rank_options, where);
        detail::run_rank(mesh.grid(where), body, options, where);
    }
}

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <cstddef>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/communicator.hpp>
#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/backend/mpi/world.hpp>

namespace shardkit::mpi::detail SHARDKIT_FACE {

SHARDKIT_CORE_INLINE void run_rank(const AxisGrid& grid, const shardkit::detail::RankBody& body,
                                   const Options& options, SourceLocation where) {
    World world(MPI_COMM_WORLD, options, where);
    const std::size_t processes = world.world_group().size();
    if (grid.size() != processes) {
        world.finish(where);
        throw_invalid_argument(where, "mesh ", grid.describe(), " has ", grid.size(), " ranks, but this MPI job has ",
                               processes, " processes; start it with mpirun -n ", grid.size());
    }
    try {
        body(world.communicator(), world.streams(),
             [](const Streams& streams, SourceLocation /*where*/) { streams.synchronize(); });
        world.finish(where);
    } catch (...) {
        world.record_exception();
        const Group& everybody = world.world_group();
        abort_job(everybody.rank, everybody.size());
    }
}

}  // namespace SHARDKIT_FACE
#endif
