// SPDX-License-Identifier: Apache-2.0
// expected-error: optimizer step consumes the gradients: write step(std::move(reduced), ...)
#include "model.hpp"

void train(Layer& layer) {
    sk::Model model{layer};
    sk::SGD optimizer{model};
    auto reduced = sk::assume_reduced(model);
#ifdef REJECT
    optimizer.step(reduced);
#else
    optimizer.step(std::move(reduced));
#endif
}
