// SPDX-License-Identifier: Apache-2.0
// expected-error: impossible policy: sharded parameters need a sharded optimizer; a replicated one would update parameters that the rank does not hold
#include "model.hpp"

/// Sharded parameters under a replicated optimizer.
struct Impossible : sk::FullShard {
    static constexpr sk::Placement optimizer = sk::Placement::replicated;
};

#ifdef REJECT
using Policy = Impossible;
#else
using Policy = sk::FullShard;
#endif
void make(sk::Context<Engine>& context) { const sk::Sharded<Weight, Policy, Engine> layer{context, "layer"}; }
