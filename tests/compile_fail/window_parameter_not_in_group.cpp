// SPDX-License-Identifier: Apache-2.0
// expected-error: this parameter is not in the group
#include "model.hpp"

float first(Layer& layer) {
    auto window = layer.unshard();
#ifdef REJECT
    return window[Foreign{}][0];
#else
    return window[Weight{}][0];
#endif
}
