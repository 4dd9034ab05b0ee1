// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifdef SHARDKIT_COMPILED
#include <shardkit/compiled/context.hpp>
#else
#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/rank/context.hpp>

namespace shardkit {

/// A type that arranges ranks: DeviceMesh, with static or dynamic extents.
template <class M>
concept MeshType = requires(const M mesh, SourceLocation where) {
    { mesh.grid(where) } -> std::convertible_to<AxisGrid>;
    { mesh.size() } -> std::convertible_to<std::size_t>;
};

namespace detail {
/// M could be the mesh argument of an engine's `run`, valid or not, and is not a rank. A trainer's own `run(rank,
/// ...)`, for which argument-dependent lookup also finds the engine's `run` by the rank's type, is therefore not
/// mistaken for it.
template <class M>
concept MayBeMesh = std::copy_constructible<M>;

/// Reports in one sentence that a mesh is expected, instead of the errors that another type causes.
template <class M>
struct MeshRules {
    static constexpr bool is_mesh = MeshType<M>;
    static_assert(is_mesh,
                  "run(mesh, f): the first argument is a mesh, as DeviceMesh<4>{} or DeviceMesh{number_of_ranks}");
};

/// Reports in one sentence that F cannot be called with a rank, as where it takes it by value.
template <class F, class Rank>
struct BodyRules {
    static constexpr bool takes_rank = std::is_invocable_v<F&, Rank&>;
    static_assert(takes_rank, "run(mesh, f): f is called with the rank, which it takes by reference: [](auto& rank)");
};
}  // namespace detail

/// What one rank of a job works with: its context, and the mesh with its static extents, so that the compiler can
/// refuse what does not fit the mesh.
template <class MeshType>
class MeshRank : public Rank {
  public:
    using Mesh = MeshType;

    /// Makes a rank of its mesh and world.
    /// @throws std::invalid_argument when the world has another size than the mesh
    MeshRank(Mesh mesh, Communicator world, RankOptions options = {}, Streams streams = {},
             SourceLocation where = SourceLocation::current())
        : Rank(mesh.grid(where), std::move(world), options, streams, where), mesh_(mesh) {}

    const Mesh& mesh() const noexcept { return mesh_; }

  private:
    Mesh mesh_;
};

}  // namespace shardkit
#endif
