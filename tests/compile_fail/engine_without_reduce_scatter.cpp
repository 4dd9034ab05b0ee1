// SPDX-License-Identifier: Apache-2.0
// expected-error: Sharded<..., Engine>: Engine::Communicator must satisfy ReduceScatters; see comm/reduce_scatter.hpp
#include "model.hpp"

#include "../concepts/least_engine.hpp"

struct Violating : least::VerbsOfGroups<Violating> {
#ifdef REJECT
    void reduce_scatter() const {}
#endif
};
struct Violator : least::Trainer {
    using Communicator = Violating;
};
std::size_t size() { return sizeof(sk::Sharded<Weight, sk::FullShard, Violator>); }
