// SPDX-License-Identifier: Apache-2.0
// expected-error: invalid invocation of method
// compiler: clang
// flags: -Wconsumed -Werror
#include "model.hpp"

float read(Layer& layer) {
    auto window = layer.unshard();
    const auto kept = std::move(window);
#ifdef REJECT
    return window[Weight{}][0];
#else
    return kept[Weight{}][0];
#endif
}
