// SPDX-License-Identifier: Apache-2.0
// expected-error: optimizer step consumes the gradients, and takes options with them: write step(std::move(accumulation), {.divisor = ..., .max_norm = ...})
#include "model.hpp"

void step(sk::Optimizer& optimizer, sk::Accumulation& accumulation) {
#ifdef REJECT
    optimizer.step(accumulation);
#else
    optimizer.step(std::move(accumulation), {.divisor = sk::mean});
#endif
}
