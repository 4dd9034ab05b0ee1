// SPDX-License-Identifier: Apache-2.0
// expected-error: reduce takes an Accumulation; add the gradients of each microbatch first
#include "model.hpp"

void reduce(sk::Accumulation& accumulation, Layer& layer) {
    auto gradients = accumulation.gradients(layer);
#ifdef REJECT
    auto reduced = sk::reduce(std::move(gradients), sk::mean);
#else
    accumulation.add(std::move(gradients));
    auto reduced = sk::reduce(std::move(accumulation), sk::mean);
#endif
}
