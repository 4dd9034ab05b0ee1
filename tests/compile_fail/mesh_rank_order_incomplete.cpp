// SPDX-License-Identifier: Apache-2.0
// expected-error: RankOrder: name each of Dp, Tp and Cp once
#include <shardkit/mesh/device_mesh.hpp>

using namespace shardkit;

#ifdef REJECT
using Order = RankOrder<Dp, Tp, Tp>;
#else
using Order = RankOrder<Cp, Tp, Dp>;
#endif
static_assert(DeviceMesh<2, 2, 2, Order>{}.size() == 8);
