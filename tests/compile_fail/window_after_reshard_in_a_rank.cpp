// SPDX-License-Identifier: Apache-2.0
// expected-error: invalid invocation of method 'operator[]' on object 'window' while it is in the 'consumed' state
// compiler: clang
// flags: -Wconsumed -Werror=consumed
#include "model.hpp"

#include <vector>

void train() {
    sk::self::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        std::vector<Layer> layers;
        layers.emplace_back(rank, "layers.0");
        for (auto& layer : layers) {
            auto window = std::move(layer.begin_unshard()).wait();
            static_cast<void>(window[Bias{}]);
            layer.reshard(std::move(window));
#ifdef REJECT
            static_cast<void>(window[Bias{}]);
#endif
        }
    });
}
