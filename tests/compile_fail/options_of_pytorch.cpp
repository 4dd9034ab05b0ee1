// SPDX-License-Identifier: Apache-2.0
// expected-error: optimizer options have names of their own: lr is learning_rate, betas are beta1 and beta2, eps is epsilon
#include "model.hpp"

void train(const sk::Model& model) {
#ifdef REJECT
    sk::AdamW optimizer{model, {.lr = 0.1, .weight_decay = 0.1}};
#else
    sk::AdamW optimizer{model, {.learning_rate = 0.1, .weight_decay = 0.1}};
    sk::SGD other{model, {}};
#endif
}
