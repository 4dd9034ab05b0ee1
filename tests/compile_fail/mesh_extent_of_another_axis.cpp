// SPDX-License-Identifier: Apache-2.0
// expected-error: DeviceMesh::extent: the axes are Dp, Tp and Cp
#include <shardkit/mesh/device_mesh.hpp>

using namespace shardkit;

#ifdef REJECT
using Axis = DpShard;
#else
using Axis = Cp;
#endif
static_assert(DeviceMesh<2, 2, 3>{}.extent<Axis>() == 3);
