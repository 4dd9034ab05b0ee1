// SPDX-License-Identifier: Apache-2.0
// expected-error: impossible policy: a replicated optimizer needs replicated gradients; with sharded ones it would see one shard only
#include "model.hpp"

/// A replicated optimizer fed with one shard of the gradients.
struct Impossible : sk::NoShard {
    static constexpr sk::Placement gradients = sk::Placement::sharded;
};

#ifdef REJECT
using Policy = Impossible;
#else
using Policy = sk::NoShard;
#endif
void make(sk::Context<Engine>& context) { const sk::Sharded<Weight, Policy, Engine> layer{context, "layer"}; }
