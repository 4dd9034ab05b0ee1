// SPDX-License-Identifier: Apache-2.0
// expected-error: Sharded::adopt: only a policy that keeps whole parameters works in place
#include "model.hpp"

#ifdef REJECT
using Policy = sk::FullShard;
#else
using Policy = sk::NoShard;
#endif
using Adopter = sk::Sharded<Linear, Policy>;

void wrap(sk::Rank& rank, std::span<float> parameters, std::span<float> gradients) {
    auto layer = Adopter::adopt(rank, "layer", {}, {parameters, gradients});
}
