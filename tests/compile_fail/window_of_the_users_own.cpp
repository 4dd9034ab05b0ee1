// SPDX-License-Identifier: Apache-2.0
// expected-error: private
#include "model.hpp"

auto open(Layer& layer, typename Layer::State& state) {
#ifdef REJECT
    static_cast<void>(layer);
    return sk::Window<Layer::State>(state, sk::SourceLocation::current());
#else
    static_cast<void>(state);
    return layer.unshard();
#endif
}
