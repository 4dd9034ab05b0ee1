// SPDX-License-Identifier: Apache-2.0
// expected-error: impossible policy: parameters, reduced gradients and optimizer are replicated or sharded, never partial
#include "model.hpp"

/// Gradients are summed into a shard, but declared to stay partial.
struct Impossible : sk::FullShard {
    static constexpr sk::Placement gradients = sk::Placement::partial;
};

#ifdef REJECT
using Policy = Impossible;
#else
using Policy = sk::FullShard;
#endif
void make(sk::Context<Engine>& context) { const sk::Sharded<Weight, Policy, Engine> layer{context, "layer"}; }
