// SPDX-License-Identifier: Apache-2.0
// expected-error: this parameter is not in the group
#include "model.hpp"

void backward(sk::Accumulation& accumulation, Layer& layer) {
    auto gradients = accumulation.gradients(layer);
#ifdef REJECT
    gradients[Foreign{}][0] += 1;
#else
    gradients[Weight{}][0] += 1;
#endif
}
