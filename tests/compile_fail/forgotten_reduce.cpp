// SPDX-License-Identifier: Apache-2.0
// expected-error: optimizer step takes reduced gradients: call reduce(std::move(accumulation), divisor) first
#include "model.hpp"

void step(sk::AdamW<Layer>& optimizer, sk::Accumulation<Layer>& accumulation) {
#ifdef REJECT
    optimizer.step(std::move(accumulation));
#else
    optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
#endif
}
