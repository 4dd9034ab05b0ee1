// SPDX-License-Identifier: Apache-2.0
// expected-error: DeviceMesh<DP, TP, CP>: the number of ranks overflows
#include <shardkit/mesh/device_mesh.hpp>

using namespace shardkit;

constexpr std::size_t half = std::size_t{1} << 32U;
#ifdef REJECT
using Mesh = DeviceMesh<half, half, dynamic>;
#else
using Mesh = DeviceMesh<half, half - 1, dynamic>;
#endif
static_assert(Mesh::static_dp == half);
