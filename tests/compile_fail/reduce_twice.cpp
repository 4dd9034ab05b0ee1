// SPDX-License-Identifier: Apache-2.0
// expected-error: reduce: these gradients are already reduced
#include "model.hpp"

void train(Layer& layer) {
    sk::Model model{layer};
    sk::Accumulation accumulation{model};
    accumulation.add_zero(layer);
    auto reduced = sk::reduce(std::move(accumulation), sk::mean);
#ifdef REJECT
    auto again = sk::reduce(std::move(reduced), sk::mean);
#endif
}
