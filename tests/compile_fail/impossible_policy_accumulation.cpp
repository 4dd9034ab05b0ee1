// SPDX-License-Identifier: Apache-2.0
// expected-error: impossible policy: accumulating reduced gradients needs sharded gradients
#include "model.hpp"

/// Every microbatch is reduced, into full-size gradients.
struct Impossible : sk::FullShard {
    static constexpr sk::Placement gradients = sk::Placement::replicated;
};

#ifdef REJECT
using Policy = Impossible;
#else
using Policy = sk::FullShard;
#endif
void make(sk::Rank& rank) { const sk::Sharded<Weight, Policy> layer{rank, "layer"}; }
