// SPDX-License-Identifier: Apache-2.0
// expected-error: split layers: Engine must satisfy engine::IndexKernels; see rank/index_kernels.hpp
#include "model.hpp"

#include <shardkit/tensor_parallel/cross_entropy.hpp>

#include "../concepts/least_engine.hpp"

struct Violating : least::KernelsByIndex {
#ifdef REJECT
    static void for_each_index(least::Stream);
#endif
};
struct Violator : least::Talker {
    using Kernels = Violating;
};
std::size_t size() { return sizeof(sk::tp::CrossEntropy<Violator, float>); }
