// SPDX-License-Identifier: Apache-2.0
// expected-error: optimizer step takes reduced gradients
#include "model.hpp"

void step(sk::AdamW<Layer>& optimizer, sk::Accumulation<Layer>& accumulation, sk::ClipCoefficient coefficient) {
#ifdef REJECT
    optimizer.step(std::move(accumulation), coefficient);
#else
    optimizer.step(sk::reduce(std::move(accumulation), sk::mean), coefficient);
#endif
}
