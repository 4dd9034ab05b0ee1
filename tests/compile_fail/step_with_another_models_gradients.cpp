// SPDX-License-Identifier: Apache-2.0
// expected-error: optimizer step: these gradients belong to other groups than the optimizer's
#include "model.hpp"

void step(sk::AdamW<Layer>& optimizer, sk::AdamW<OtherLayer>& other_optimizer, sk::Reduced<OtherLayer>& reduced) {
    static_cast<void>(&optimizer);
#ifdef REJECT
    optimizer.step(std::move(reduced));
#else
    other_optimizer.step(std::move(reduced));
#endif
}
