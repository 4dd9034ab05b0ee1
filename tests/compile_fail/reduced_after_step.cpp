// SPDX-License-Identifier: Apache-2.0
// expected-error: invalid invocation of method 'groups' on object 'reduced' while it is in the 'consumed' state
// compiler: clang
// flags: -Wconsumed -Werror=consumed
#include "model.hpp"

void train(Layer& layer) {
    auto model = sk::groups(layer);
    sk::SGD optimizer{model};
    sk::Accumulation accumulation{model};
    accumulation.add_zero(layer, sk::Microbatch::last);
    auto reduced = sk::reduce(std::move(accumulation), sk::mean);
    const auto norm = sk::global_norm(reduced);
    optimizer.step(std::move(reduced), sk::clip(norm, 1));
#ifdef REJECT
    static_cast<void>(reduced.groups());
#endif
}
