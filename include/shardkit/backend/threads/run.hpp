// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/core/source_location.hpp>
#include <shardkit/rank/rank.hpp>

namespace shardkit::threads {
struct LaunchOptions;
}

namespace shardkit::threads::detail SHARDKIT_FACE {
/// Runs the body on so many threads, each a rank of one World; `options` null: default ones.
void run_ranks(std::size_t ranks, const shardkit::detail::RankBody& body, const LaunchOptions* options,
               SourceLocation where);
}  // namespace SHARDKIT_FACE

namespace shardkit::threads SHARDKIT_FACE {

/// Runs `f(rank)` on one thread per rank of `mesh`, each with its own Rank, and waits for all. The ranks share `f`:
/// it is called on all threads at once.
/// @throws the exception of the lowest rank that failed by itself, unchanged; PeerError when ranks only waited for
///         each other
template <shardkit::detail::MayBeMesh Mesh, class F>
void run(Mesh mesh, F&& f, RankOptions options = {}, SourceLocation where = SourceLocation::current()) {
    if constexpr (shardkit::detail::MeshRules<Mesh>::is_mesh) {
        detail::run_ranks(mesh.size(), shardkit::detail::UserBody<MeshRank<Mesh>, F>(mesh, f, options, where),
                          nullptr, where);
    }
}
/// Runs likewise, with the LaunchOptions of backend/threads/launch_options.hpp. With LaunchOptions::overlap a rank
/// has two streams beside its own thread: communication and reduction.
template <shardkit::detail::MayBeMesh Mesh, class F>
void run(Mesh mesh, F&& f, RankOptions options, const LaunchOptions& launch_options,
         SourceLocation where = SourceLocation::current()) {
    if constexpr (shardkit::detail::MeshRules<Mesh>::is_mesh) {
        detail::run_ranks(mesh.size(), shardkit::detail::UserBody<MeshRank<Mesh>, F>(mesh, f, options, where),
                          &launch_options, where);
    }
}

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/backend/threads/communicator.hpp>
#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/backend/threads/launch_options.hpp>

namespace shardkit::threads::detail SHARDKIT_FACE {
SHARDKIT_CORE_INLINE void run_ranks(std::size_t ranks, const shardkit::detail::RankBody& body,
                                    const LaunchOptions* options, SourceLocation where) {
    const auto each = [&](const Communicator& world) { body(world, world.streams()); };
    launch(ranks, each, options == nullptr ? LaunchOptions{} : *options, where);
}
}  // namespace SHARDKIT_FACE
#endif
