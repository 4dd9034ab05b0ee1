// SPDX-License-Identifier: Apache-2.0
// expected-error: Accumulation::gradients: this Sharded is not one of the accumulation's groups
#include "model.hpp"

void backward(sk::Accumulation<Layer>& accumulation, Layer& layer, OtherLayer& other) {
    static_cast<void>(&other);
#ifdef REJECT
    auto gradients = accumulation.gradients(other);
#else
    auto gradients = accumulation.gradients(layer);
#endif
}
