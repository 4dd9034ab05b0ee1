// SPDX-License-Identifier: Apache-2.0
// expected-error: Window: this parameter is not in the group
#include "model.hpp"

float first(Layer& layer) {
    const auto window = layer.unshard();
#ifdef REJECT
    return window[1][0];
#else
    return window.view(1)[0];
#endif
}
