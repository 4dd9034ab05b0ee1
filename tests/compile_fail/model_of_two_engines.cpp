// SPDX-License-Identifier: Apache-2.0
// expected-error: Model: the groups of one model must be of one engine
#include "model.hpp"

#include <shardkit/backend/threads/communicator.hpp>

#ifdef REJECT
struct Other : sk::threads::Engine {};
#else
using Other = sk::threads::Engine;
#endif
void collect(sk::Sharded<Weight, sk::FullShard, sk::threads::Engine>& a,
             sk::Sharded<Weight, sk::FullShard, Other>& b) {
    sk::Model model{a, b};
}
