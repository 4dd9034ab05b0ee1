// SPDX-License-Identifier: Apache-2.0
// expected-error: reduce consumes the accumulation: write reduce(std::move(accumulation), divisor)
#include "model.hpp"

void train(Layer& layer) {
    sk::Model model{layer};
    sk::Accumulation accumulation{model};
#ifdef REJECT
    sk::reduce(accumulation, sk::sum);
#else
    static_cast<void>(sk::reduce(std::move(accumulation), sk::sum));
#endif
}
