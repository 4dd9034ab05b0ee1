// SPDX-License-Identifier: Apache-2.0
// expected-error: Sharded{rank, path, policy}: the policy is an option, and shapes stand before options
#include "model.hpp"

void make(sk::Rank& rank) {
#ifdef REJECT
    const Layer layer{rank, "layer", sk::FullShard{}};
#else
    const Layer layer{rank, "layer", {}, {sk::FullShard{}}};
#endif
}
