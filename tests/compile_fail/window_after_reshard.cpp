// SPDX-License-Identifier: Apache-2.0
// expected-error: invalid invocation of method 'operator[]' on object 'window' while it is in the 'consumed' state
// compiler: clang
// flags: -Wconsumed -Werror=consumed
#include "model.hpp"

float forward(Layer& layer) {
    auto window = layer.unshard();
    const float first = window[Weight{}][0];
    layer.reshard(std::move(window));
#ifdef REJECT
    return window[Weight{}][0];
#else
    return first;
#endif
}
