// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include <shardkit/core/dynamic.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/mesh/device_mesh.hpp>

namespace shardkit {

/// A mesh whose data ranks share the experts of a layer: EP of them hold all experts, and the others copies. It is
/// Mesh for all groups but those of experts (ep::Split), which see dp and cp as dp_replicate x ep_dp x ep, ep
/// fastest.
///     threads::run(ExpertMesh<DeviceMesh<8>, 4>{}, ...);      // ep = 4, ep_dp = 2
///     threads::run(ExpertMesh{DeviceMesh{8, 2}, 4}, ...);     // the same with tp = 2, at run time
template <class Mesh, std::size_t EP = dynamic>
class ExpertMesh : public Mesh {
  public:
    static constexpr std::size_t static_ep = EP;

    constexpr ExpertMesh() noexcept requires(EP != dynamic) {
        static_assert(fits(Mesh{}.dp(), Mesh{}.cp(), EP),
                      "ExpertMesh<Mesh, EP>: EP must divide dp x cp, and be a factor or a multiple of cp");
    }
    /// Makes a mesh of which `ep` data ranks share the experts of a layer.
    /// @throws std::invalid_argument unless ep divides dp x cp and is a factor or a multiple of cp, and is EP
    constexpr explicit ExpertMesh(const Mesh& mesh, std::size_t ep = EP,
                                  SourceLocation where = SourceLocation::current())
        : Mesh(mesh), ep_(ep) {
        require_argument(ep != dynamic && (EP == dynamic || ep == EP), where, "ExpertMesh: ep = ", ep,
                         " given, expected ", EP, " as in the type");
        require_argument(fits(mesh.dp(), mesh.cp(), ep), where, "ExpertMesh: ep = ", ep, " on dp = ", mesh.dp(),
                         " x cp = ", mesh.cp(), ", expected a number that divides ", mesh.dp() * mesh.cp(),
                         " and is a factor or a multiple of cp");
    }

    constexpr std::size_t ep() const noexcept { return ep_; }
    /// Returns the grid under this mesh, which knows ep besides the axes of Mesh.
    constexpr AxisGrid grid(SourceLocation where = SourceLocation::current()) const noexcept {
        return Mesh::grid(where).with_experts(ep_);
    }
    /// Returns the extents as text, "4x2x1 ep 2".
    std::string describe() const { return detail::concat(Mesh::describe(), " ep ", ep_); }

  private:
    static constexpr bool fits(std::size_t dp, std::size_t cp, std::size_t ep) noexcept {
        if (ep == 0) { return false; }
        return ep <= cp ? cp % ep == 0 : ep % cp == 0 && dp % (ep / cp) == 0;
    }

    std::size_t ep_ = EP;
};

template <class Mesh>
ExpertMesh(Mesh) -> ExpertMesh<Mesh, dynamic>;
template <class Mesh>
ExpertMesh(Mesh, std::size_t) -> ExpertMesh<Mesh, dynamic>;

}  // namespace shardkit
