// SPDX-License-Identifier: Apache-2.0
// expected-error: optimizer step consumes the gradients, and takes options with them
#include "model.hpp"

void step(sk::AdamW& optimizer, sk::Accumulation& accumulation, sk::ClipCoefficient coefficient) {
#ifdef REJECT
    optimizer.step(std::move(accumulation), coefficient);
#else
    optimizer.step(sk::reduce(std::move(accumulation), sk::mean), coefficient);
#endif
}
