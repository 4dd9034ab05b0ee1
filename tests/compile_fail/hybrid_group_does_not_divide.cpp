// SPDX-License-Identifier: Apache-2.0
// expected-error: Sharded: HybridShard<N> on this mesh: N does not divide DP
#include "model.hpp"

#ifdef REJECT
constexpr std::size_t group = 3;
#else
constexpr std::size_t group = 2;
#endif

void make(sk::MeshRank<sk::DeviceMesh<4, 1, 1>>& rank) {
    const sk::Sharded<Weight, sk::HybridShard<group>> layer{rank, "layer"};
}
