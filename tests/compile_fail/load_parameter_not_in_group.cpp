// SPDX-License-Identifier: Apache-2.0
// expected-error: this parameter is not in the group
#include "model.hpp"

void load(Layer& layer, std::span<const float> values) {
#ifdef REJECT
    layer.load(Foreign{}, values);
#else
    layer.load(Weight{}, values);
#endif
}
