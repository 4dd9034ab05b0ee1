// SPDX-License-Identifier: Apache-2.0
// expected-error: global_norm takes reduced gradients: call reduce(std::move(accumulation), divisor) first
#include "model.hpp"

void norm(Layer& layer) {
    sk::Model model{layer};
    sk::Accumulation accumulation{model};
#ifdef REJECT
    auto gradients = accumulation.gradients(layer);
    sk::global_norm(gradients);
#else
    accumulation.add_zero(layer);
    sk::global_norm(sk::reduce(std::move(accumulation), sk::mean));
#endif
}
