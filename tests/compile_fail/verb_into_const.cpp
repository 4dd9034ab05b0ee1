// SPDX-License-Identifier: Apache-2.0
// expected-error: a verb writes its output: expected memory that is not const
#include "model.hpp"

void gather(sk::Rank& rank, const std::vector<float>& shard, std::vector<float>& full) {
#ifdef REJECT
    sk::all_gather(rank.world(), full, shard);
#else
    sk::all_gather(rank.world(), shard, full);
#endif
}
