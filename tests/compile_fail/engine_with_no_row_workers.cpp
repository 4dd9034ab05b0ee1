// SPDX-License-Identifier: Apache-2.0
// expected-error: split layers: Engine::Kernels::row_workers must be a number of at least 1; see rank/engine.hpp
#include "model.hpp"

#include <shardkit/tensor_parallel/cross_entropy.hpp>

#include "../concepts/least_engine.hpp"

struct Violating : least::KernelsByIndex {
#ifdef REJECT
    static constexpr std::size_t row_workers = 0;
#endif
};
struct Violator : least::Talker {
    using Kernels = Violating;
};
std::size_t size() { return sizeof(sk::tp::CrossEntropy<Violator, float>); }
