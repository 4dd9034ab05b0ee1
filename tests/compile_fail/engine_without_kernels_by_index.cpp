// SPDX-License-Identifier: Apache-2.0
// expected-error: split layers: Engine must have Kernels; see rank/engine.hpp
#include "model.hpp"

#include <shardkit/tensor_parallel/cross_entropy.hpp>

#include "../concepts/least_engine.hpp"

#ifdef REJECT
struct Violator : least::Talker {};
#else
struct Violator : least::Indexer {};
#endif
std::size_t size() { return sizeof(sk::tp::CrossEntropy<Violator, float>); }
