// SPDX-License-Identifier: Apache-2.0
// expected-error: Gradients: this parameter is not in the group
#include "model.hpp"

void backward(sk::Accumulation& accumulation, Layer& layer) {
    auto gradients = accumulation.gradients(layer);
#ifdef REJECT
    gradients["bias"][0] += 1;
#else
    gradients.view("bias")[0] += 1;
#endif
}
