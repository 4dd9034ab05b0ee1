// SPDX-License-Identifier: Apache-2.0
// expected-error: impossible policy: shard_axes must be Axes<DpShard> or Axes<DpShard, Cp>
#include "model.hpp"

/// Shards over tensor-parallel ranks, which hold different parameters.
struct Impossible : sk::FullShard {
    using shard_axes = sk::Axes<sk::DpShard, sk::Tp>;
};

#ifdef REJECT
using Policy = Impossible;
#else
using Policy = sk::FullShard;
#endif
void make(sk::Context<Engine>& context) { const sk::Sharded<Weight, Policy, Engine> layer{context, "layer"}; }
