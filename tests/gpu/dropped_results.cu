// SPDX-License-Identifier: Apache-2.0
#include <shardkit/nccl.hpp>
#include <shardkit/shardkit.hpp>

#include <utility>
#include <vector>

// nvcc warns of each result that is dropped here (as_foreign_code.cu has those that are kept), at the lines that say
// so.

namespace sk = shardkit;
using Layer = sk::Sharded<sk::TensorList<float>, sk::FullShard>;

void drop(std::vector<Layer>& layers) {
    sk::Model model{layers};
    auto next = layers[0].begin_unshard();
    layers[0].begin_unshard();              // dropped
    layers[0].unshard();                    // dropped
    layers[0].unshard(sk::Gathers::never);  // dropped
    std::move(next).wait();                 // dropped
    sk::Accumulation accumulation(model);
    accumulation.gradients(layers[0]);              // dropped
    sk::reduce(std::move(accumulation), sk::mean);  // dropped
    sk::assume_reduced(model, sk::mean);            // dropped
    sk::summon_full_params(model);                  // dropped
}
