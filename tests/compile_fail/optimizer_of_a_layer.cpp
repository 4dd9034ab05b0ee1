// SPDX-License-Identifier: Apache-2.0
// expected-error: expected a Model and not a layer: write Model model{layer} before
#include "model.hpp"

void train(Layer& layer) {
#ifdef REJECT
    sk::SGD optimizer{layer, {.learning_rate = 0.1}};
#else
    sk::Model model{layer};
    sk::SGD optimizer{model, {.learning_rate = 0.1}};
#endif
}
