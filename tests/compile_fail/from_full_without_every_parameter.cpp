// SPDX-License-Identifier: Apache-2.0
// expected-error: Sharded::from_full: one full_values<P>(...) for every parameter
#include "model.hpp"

void wrap(sk::Rank& rank, std::span<const float> weight, std::span<const float> bias) {
#ifdef REJECT
    static_cast<void>(bias);
    static_cast<void>(Layer::from_full(rank, "layer", {}, {}, sk::full_values<Weight>(weight)));
#else
    static_cast<void>(
        Layer::from_full(rank, "layer", {}, {}, sk::full_values<Weight>(weight), sk::full_values<Bias>(bias)));
#endif
}
