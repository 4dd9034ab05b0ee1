// SPDX-License-Identifier: Apache-2.0
// expected-error: Sharded<..., Engine>: Engine must satisfy engine::StepKernels; see rank/engine.hpp
#include "model.hpp"

#include "../concepts/least_engine.hpp"

struct Violating : least::KernelsOfSteps {
#ifdef REJECT
    static void update(least::Stream);
#endif
};
struct Violator : least::Trainer {
    using Kernels = Violating;
};
std::size_t size() { return sizeof(sk::Sharded<Weight, sk::FullShard, Violator>); }
