// SPDX-License-Identifier: Apache-2.0
// expected-error: private
#include "model.hpp"

auto take(sk::Accumulation& accumulation, Layer& layer, typename Layer::State& state) {
#ifdef REJECT
    static_cast<void>(accumulation);
    static_cast<void>(layer);
    return sk::Gradients<Layer::State, sk::Partial<sk::DataAxes>>(state, sk::SourceLocation::current());
#else
    static_cast<void>(state);
    return accumulation.gradients(layer);
#endif
}
