// SPDX-License-Identifier: Apache-2.0
// expected-error: impossible policy: sharded parameters are released at_update or at_reshard, replicated ones never
#include "model.hpp"

/// Sharded parameters whose full copy is never given back.
struct Impossible : sk::FullShard {
    static constexpr sk::Release release = sk::Release::never;
};

#ifdef REJECT
using Policy = Impossible;
#else
using Policy = sk::FullShard;
#endif
void make(sk::Context<Engine>& context) { const sk::Sharded<Weight, Policy, Engine> layer{context, "layer"}; }
