// SPDX-License-Identifier: Apache-2.0
// expected-error: invalid invocation of method 'operator[]' on object 'gradients' while it is in the 'consumed' state
// compiler: clang
// flags: -Wconsumed -Werror=consumed
#include "model.hpp"

void train(Layer& layer) {
    auto model = sk::groups(layer);
    sk::Accumulation accumulation{model};
    auto gradients = accumulation.gradients(layer);
    gradients[Weight{}][0] += 1;
    accumulation.add(std::move(gradients));
#ifdef REJECT
    gradients[Weight{}][0] += 1;
#endif
}
