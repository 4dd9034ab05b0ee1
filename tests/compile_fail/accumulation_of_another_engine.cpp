// SPDX-License-Identifier: Apache-2.0
// expected-error: Accumulation: this Sharded is of another engine than the model
#include "model.hpp"

struct Other : sk::threads::Engine {};
using Elsewhere = sk::Sharded<Linear, sk::FullShard, Other>;

void backward(sk::Accumulation<Engine>& accumulation, Layer& layer, Elsewhere& other) {
    static_cast<void>(&layer);
    static_cast<void>(&other);
#ifdef REJECT
    auto gradients = accumulation.gradients(other);
#else
    auto gradients = accumulation.gradients(layer);
#endif
}
