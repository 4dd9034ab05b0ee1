// SPDX-License-Identifier: Apache-2.0
// expected-error: Rank<Engine, Mesh>: Engine must satisfy shardkit::Engine; see rank/engine.hpp
#include "model.hpp"

#include "../concepts/least_engine.hpp"

struct Violator : least::Talker {
#ifdef REJECT
    static constexpr int name = 3;
#endif
};
std::size_t size() { return sizeof(sk::Rank<Violator, sk::DeviceMesh<1>>); }
