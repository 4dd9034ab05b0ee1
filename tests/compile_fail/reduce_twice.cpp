// SPDX-License-Identifier: Apache-2.0
// expected-error: reduce: these gradients are already reduced
#include "model.hpp"

void train(Layer& layer) {
    auto model = sk::groups(layer);
    sk::Accumulation accumulation{model};
    accumulation.add_zero(layer, sk::Microbatch::last);
    auto reduced = sk::reduce(std::move(accumulation), sk::mean);
#ifdef REJECT
    auto again = sk::reduce(std::move(reduced), sk::mean);
#endif
}
