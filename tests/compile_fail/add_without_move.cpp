// SPDX-License-Identifier: Apache-2.0
// expected-error: add consumes the gradients: write add(std::move(gradients))
#include "model.hpp"

void train(Layer& layer) {
    sk::Model model{layer};
    sk::Accumulation accumulation{model};
    auto gradients = accumulation.gradients(layer);
#ifdef REJECT
    accumulation.add(gradients);
#else
    accumulation.add(std::move(gradients));
#endif
}
