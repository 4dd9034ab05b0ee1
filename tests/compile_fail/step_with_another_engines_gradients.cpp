// SPDX-License-Identifier: Apache-2.0
// expected-error: optimizer step: these gradients are of another engine than the optimizer's
#include "model.hpp"

struct Other : sk::threads::Engine {};

void step(sk::Optimizer<Engine>& optimizer, sk::Reduced<Engine>& own, sk::Reduced<Other>& other) {
    static_cast<void>(&own);
    static_cast<void>(&other);
#ifdef REJECT
    optimizer.step(std::move(other));
#else
    optimizer.step(std::move(own));
#endif
}
