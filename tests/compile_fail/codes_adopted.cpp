// SPDX-License-Identifier: Apache-2.0
// expected-error: Sharded::adopt: gathered codes are made of masters, and their scales lie in the library's memory
#include "model.hpp"

#ifdef REJECT
using Gather = sk::block_int8;
#else
using Gather = sk::bf16;
#endif
using Adopter = sk::Sharded<Linear, sk::NoShard, sk::Precision<Gather, float>>;

void wrap(sk::Rank& rank, std::span<Gather> parameters, std::span<float> gradients) {
    auto layer = Adopter::adopt(rank, "layer", {}, {parameters, gradients});
}
