// SPDX-License-Identifier: Apache-2.0
// expected-error: Sharded<..., Engine>: Engine::Kernels must have copy_out(stream, from, to) for every type that can be copied; see rank/engine.hpp
#include "model.hpp"

#include "../concepts/least_engine.hpp"

struct Violating : least::KernelsOfSteps {
#ifdef REJECT
    static void copy_out(least::Stream);
#endif
};
struct Violator : least::Trainer {
    using Kernels = Violating;
};
std::size_t size() { return sizeof(sk::Sharded<Weight, sk::FullShard, Violator>); }
