// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/backend/threads/communicator.hpp>
#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/backend/threads/launch_options.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/rank/rank.hpp>

namespace shardkit::threads {

/// Runs `f(rank)` on one thread per rank of `mesh`, each with its own Rank, and waits for all. The ranks share `f`:
/// it is called on all threads at once. With LaunchOptions::overlap a rank has two streams beside its own thread:
/// communication and reduction.
/// @throws the exception of the lowest rank that failed by itself, unchanged; PeerError when ranks only waited for
///         each other
template <shardkit::detail::MayBeMesh Mesh, class F>
void run(Mesh mesh, F&& f, RankOptions options = {}, const LaunchOptions& launch_options = {},
         SourceLocation where = SourceLocation::current()) {
    if constexpr (shardkit::detail::MeshRules<Mesh>::is_mesh) {
        const auto body = [&](const Communicator& world) {
            MeshRank<Mesh> rank{
                mesh, world, options, {{}, world.communication_stream(), world.reduction_stream()}, where};
            if constexpr (shardkit::detail::BodyRules<F, MeshRank<Mesh>>::takes_rank) { f(rank); }
        };
        launch(static_cast<std::size_t>(mesh.size()), body, launch_options, where);
    }
}

}  // namespace shardkit::threads
