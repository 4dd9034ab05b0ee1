// SPDX-License-Identifier: Apache-2.0
// expected-error: Rank<Engine, Mesh>: Engine::Stream must satisfy Stream and be the Communicator's; see rank/engine.hpp
#include "model.hpp"

#include "../concepts/least_engine.hpp"

struct Violator : least::Talker {
#ifdef REJECT
    using Stream = sk::InlineStream;
#endif
};
std::size_t size() { return sizeof(sk::Rank<Violator, sk::DeviceMesh<1>>); }
