// SPDX-License-Identifier: Apache-2.0
// expected-error: Sharded<..., Engine>: Engine must satisfy engine::GroupVerbs; see rank/engine.hpp
#include "model.hpp"

#include "../concepts/least_engine.hpp"

struct Violating : least::VerbsOfGroups<Violating> {
#ifdef REJECT
    void all_gather() const {}
#endif
};
struct Violator : least::Trainer {
    using Communicator = Violating;
};
std::size_t size() { return sizeof(sk::Sharded<Weight, sk::FullShard, Violator>); }
