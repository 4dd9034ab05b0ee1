// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <shardkit/rank/context.hpp>

namespace shardkit {

/// Ranks can be arranged as an M: DeviceMesh, with extents that the compiler knows or not.
template <class M>
concept MeshType = requires(const M mesh, SourceLocation where) {
    { mesh.grid(where) } -> std::convertible_to<AxisGrid>;
    { mesh.size() } -> std::convertible_to<std::size_t>;
};

namespace detail {
/// M can be what an engine's `run` takes for a mesh, right or wrong, and is not a rank: a trainer's own `run(rank,
/// ...)`, beside which the rank's type brings its engine's into a call, is not taken for that.
template <class M>
concept MayBeMesh = std::copy_constructible<M>;

/// Says that a mesh is expected, in one sentence instead of what follows from another type.
template <class M>
struct MeshRules {
    static constexpr bool is_mesh = MeshType<M>;
    static_assert(is_mesh,
                  "run(mesh, f): the first argument is a mesh, as DeviceMesh<4>{} or DeviceMesh{number_of_ranks}");
};
}  // namespace detail

/// Holds what one rank of a job works with: its context, and the mesh with its static extents, so that what does not
/// fit the mesh is refused by the compiler.
template <class EngineType, class MeshType>
class Rank : public Context<EngineType> {
  public:
    using Mesh = MeshType;

    /// Makes a rank of its mesh and world.
    /// @throws std::invalid_argument when the world has another size than the mesh
    Rank(Mesh mesh, typename EngineType::Communicator world, RankOptions options = {},
         Streams<typename EngineType::Stream> streams = {}, SourceLocation where = SourceLocation::current())
        : Context<EngineType>(mesh.grid(where), std::move(world), options, std::move(streams), where), mesh_(mesh) {}

    const Mesh& mesh() const noexcept { return mesh_; }

  private:
    Mesh mesh_;
};

/// The engine of a rank or context, also of a reference to one: EngineOf<decltype(rank)> in generic lambdas.
template <class RankOrContext>
using EngineOf = typename std::remove_cvref_t<RankOrContext>::Engine;

}  // namespace shardkit
