// SPDX-License-Identifier: Apache-2.0
// expected-error: optimizer step takes reduced gradients
#include "model.hpp"

void step(sk::SGD& optimizer, sk::Accumulation& accumulation, Layer& layer) {
    auto gradients = accumulation.gradients(layer);
#ifdef REJECT
    optimizer.step(std::move(gradients));
#else
    accumulation.add(std::move(gradients));
    optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
#endif
}
