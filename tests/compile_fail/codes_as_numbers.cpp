// SPDX-License-Identifier: Apache-2.0
// expected-error: values: codes without their scales are no numbers; expected floating elements
#include "model.hpp"

void load(Layer& layer, std::span<const sk::e4m3> codes, std::span<const float> numbers) {
#ifdef REJECT
    layer.load(Weight{}, codes);
#else
    layer.load(Weight{}, numbers);
#endif
    static_cast<void>(codes);
    static_cast<void>(numbers);
}
