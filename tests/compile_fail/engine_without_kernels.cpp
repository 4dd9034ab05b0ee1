// SPDX-License-Identifier: Apache-2.0
// expected-error: Sharded<..., Engine>: Engine must have Kernels; see rank/engine.hpp
#include "model.hpp"

#include "../concepts/least_engine.hpp"

#ifdef REJECT
struct Violator : least::Talker {
#else
struct Violator : least::Trainer {
#endif
    using Communicator = least::Communicator;
};
std::size_t size() { return sizeof(sk::Sharded<Weight, sk::FullShard, Violator>); }
