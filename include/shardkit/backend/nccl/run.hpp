// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

#include <shardkit/backend/nccl/launcher.hpp>
#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/rank/rank.hpp>

namespace shardkit::nccl::detail SHARDKIT_FACE {
/// Runs the body with the World's GPU selected, and finishes the World.
void run_rank(World& world, const shardkit::detail::RankBody& body, SourceLocation where);
}  // namespace SHARDKIT_FACE

namespace shardkit::nccl SHARDKIT_FACE {

/// Runs `f(rank)` in this thread as one rank of `mesh`, over the ranks of `world`, with the World's GPU selected;
/// then waits for its streams and finishes the World. Every rank of the World must make the same call.
///
/// Errors:  when f throws, the World is aborted and the exception is rethrown; peers fail at their next wait, at the
///          latest after their timeout.
/// @throws  std::invalid_argument when the World has another number of ranks than the mesh; CommError; what f throws
template <MeshType Mesh, class F>
void run(Mesh mesh, World& world, F&& f, RankOptions rank_options = {},
         SourceLocation where = SourceLocation::current()) {
    detail::run_rank(world, shardkit::detail::UserBody<MeshRank<Mesh>, F>(mesh, f, rank_options, where), where);
}

/// Returns one rank of `mesh` over the ranks of `world`, for a program in whose structure `run` does not fit. The
/// World outlives it; call `world.finish()` when it is done. See docs/cuda_engine.md.
///     auto rank = sk::nccl::make_rank(mesh, world);
/// @throws  std::invalid_argument when the World has another number of ranks than the mesh
template <MeshType Mesh>
MeshRank<Mesh> make_rank(Mesh mesh, World& world, RankOptions rank_options = {},
                         SourceLocation where = SourceLocation::current()) {
    return MeshRank<Mesh>(mesh, world.communicator(), rank_options, world.streams(), where);
}

/// Runs `f(rank)` in a process that a launcher such as torchrun started, with a World made from its environment.
/// @throws  also what Launcher::from_environment and the constructor of World throw
template <MeshType Mesh, class F>
void run(Mesh mesh, F&& f, RankOptions rank_options = {}, const Options& options = {},
         SourceLocation where = SourceLocation::current()) {
    World world(Launcher::from_environment(where), options, where);
    run(mesh, world, f, rank_options, where);
}

}  // namespace SHARDKIT_FACE

#include <shardkit/detail/show_macros.inc>
