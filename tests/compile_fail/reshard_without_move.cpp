// SPDX-License-Identifier: Apache-2.0
// expected-error: reshard consumes the window: write reshard(std::move(window))
#include "model.hpp"

void train(Layer& layer) {
    auto window = layer.unshard();
#ifdef REJECT
    layer.reshard(window);
#else
    layer.reshard(std::move(window));
#endif
}
