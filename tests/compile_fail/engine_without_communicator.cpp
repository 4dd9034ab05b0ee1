// SPDX-License-Identifier: Apache-2.0
// expected-error: Rank<Engine, Mesh>: Engine::Communicator must satisfy Communicator; see comm/communicator.hpp
#include "model.hpp"

#include "../concepts/least_engine.hpp"

struct Nameless : least::SilentCommunicator<Nameless> {
#ifdef REJECT
    Nameless named() const { return {}; }
#endif
};
struct Violator : least::Talker {
    using Communicator = Nameless;
};
std::size_t size() { return sizeof(sk::Rank<Violator, sk::DeviceMesh<1>>); }
