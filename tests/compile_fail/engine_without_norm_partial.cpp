// SPDX-License-Identifier: Apache-2.0
// expected-error: Sharded<..., Engine>: Engine::Kernels must have norm_partial(stream, pieces, positions, scale, into); see rank/engine.hpp
#include "model.hpp"

#include "../concepts/least_engine.hpp"

struct Violating : least::KernelsOfSteps {
#ifdef REJECT
    static void norm_partial(least::Stream);
#endif
};
struct Violator : least::Trainer {
    using Kernels = Violating;
};
std::size_t size() { return sizeof(sk::Sharded<Weight, sk::FullShard, Violator>); }
