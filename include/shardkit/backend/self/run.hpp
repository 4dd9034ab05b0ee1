// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/self/communicator.hpp>
#include <shardkit/backend/self/engine.hpp>
#include <shardkit/rank/rank.hpp>

namespace shardkit::self {

/// Calls `f(rank)` in this thread, with the only rank of `mesh`.
/// @throws std::invalid_argument when the mesh has more than one rank; whatever f throws
template <shardkit::detail::MayBeMesh Mesh, class F>
void run(Mesh mesh, F&& f, RankOptions options = {}, SourceLocation where = SourceLocation::current()) {
    if constexpr (shardkit::detail::MeshRules<Mesh>::is_mesh) {
        World world;
        MeshRank<Mesh> rank{mesh, Communicator(world), options, {}, where};
        if constexpr (shardkit::detail::BodyRules<F, MeshRank<Mesh>>::takes_rank) { f(rank); }
    }
}

}  // namespace shardkit::self
