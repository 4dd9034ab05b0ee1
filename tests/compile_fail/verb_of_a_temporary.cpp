// SPDX-License-Identifier: Apache-2.0
// expected-error: expected memory that lives on, not a temporary
#include "model.hpp"

void gather(sk::Rank& rank, std::vector<float>& full) {
#ifdef REJECT
    sk::all_gather(rank.world(), std::vector<float>(4), full);
#else
    const std::vector<float> shard(4);
    sk::all_gather(rank.world(), shard, full);
#endif
}
