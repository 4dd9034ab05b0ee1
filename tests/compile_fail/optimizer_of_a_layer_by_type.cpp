// SPDX-License-Identifier: Apache-2.0
// expected-error: expected a Model and not a layer: write Model model{layer} before
#include "model.hpp"

void train(Layer& layer) {
#ifdef REJECT
    sk::AdamW optimizer{layer};
#else
    const sk::Model model{layer};
    sk::AdamW optimizer{model, {}};
    sk::AdamW deduced{model, {.weight_decay = 0.1}};
#endif
}
