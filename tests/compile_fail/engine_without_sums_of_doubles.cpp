// SPDX-License-Identifier: Apache-2.0
// expected-error: Sharded<..., Engine>: Engine::Communicator must add doubles up, for norms; see comm/all_reduce.hpp
#include "model.hpp"

#include "../concepts/least_engine.hpp"

struct Violating : least::VerbsOfGroups<Violating> {
#ifdef REJECT
    void all_reduce(sk::ReduceOp, std::span<const float>, std::span<float>, least::Stream, least::Where) const {}
#endif
};
struct Violator : least::Trainer {
    using Communicator = Violating;
};
std::size_t size() { return sizeof(sk::Sharded<Weight, sk::FullShard, Violator>); }
