// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/rank/rank.hpp>

namespace shardkit::self::detail SHARDKIT_FACE {
/// Calls the body in this thread, as the only rank of a World.
void run_rank(const shardkit::detail::RankBody& body);
}  // namespace SHARDKIT_FACE

namespace shardkit::self SHARDKIT_FACE {

/// Calls `f(rank)` in this thread, with the only rank of `mesh`.
/// @throws std::invalid_argument when the mesh has more than one rank; whatever f throws
template <shardkit::detail::MayBeMesh Mesh, class F>
void run(Mesh mesh, F&& f, RankOptions options = {}, SourceLocation where = SourceLocation::current()) {
    if constexpr (shardkit::detail::MeshRules<Mesh>::is_mesh) {
        detail::run_rank(shardkit::detail::UserBody<MeshRank<Mesh>, F>(mesh, f, options, where));
    }
}

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/backend/self/communicator.hpp>

namespace shardkit::self::detail SHARDKIT_FACE {
SHARDKIT_CORE_INLINE void run_rank(const shardkit::detail::RankBody& body) {
    World world;
    body(Communicator(world), {});
}
}  // namespace SHARDKIT_FACE
#endif
