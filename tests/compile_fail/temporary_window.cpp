// SPDX-License-Identifier: Apache-2.0
// expected-error: Window: this one ends before its parameters are used; keep it: const auto w = layer.unshard();
#include "model.hpp"

float first(Layer& layer) {
#ifdef REJECT
    return layer.unshard()[Weight{}][0];
#else
    const auto window = layer.unshard();
    return window[Weight{}][0];
#endif
}
