// SPDX-License-Identifier: Apache-2.0
// expected-error: a verb that adds nothing up has input and output of one element type
#include "model.hpp"

void gather(sk::Rank& rank, const std::vector<float>& shard) {
#ifdef REJECT
    std::vector<double> full(shard.size() * rank.world_size());
#else
    std::vector<float> full(shard.size() * rank.world_size());
#endif
    sk::all_gather(rank.world(), shard, full);
}
