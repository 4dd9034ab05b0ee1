// SPDX-License-Identifier: Apache-2.0
// expected-error: ExpertMesh<Mesh, EP>: EP must divide dp x cp, and be a factor or a multiple of cp
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/mesh/expert_mesh.hpp>

namespace sk = shardkit;

#ifdef REJECT
constexpr sk::ExpertMesh<sk::DeviceMesh<6>, 4> mesh;
#else
constexpr sk::ExpertMesh<sk::DeviceMesh<8>, 4> mesh;
#endif
static_assert(mesh.ep() == 4);
