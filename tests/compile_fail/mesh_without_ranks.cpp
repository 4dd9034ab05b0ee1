// SPDX-License-Identifier: Apache-2.0
// expected-error: DeviceMesh<DP, TP, CP>: every extent must be at least 1
#include "model.hpp"

#ifdef REJECT
using Mesh = sk::DeviceMesh<4, 0, 1>;
#else
using Mesh = sk::DeviceMesh<4, 1, 1>;
#endif
std::size_t ranks() { return Mesh{}.size(); }
