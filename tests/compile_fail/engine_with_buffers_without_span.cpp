// SPDX-License-Identifier: Apache-2.0
// expected-error: Rank<Engine, Mesh>: Engine::Buffer<T> must satisfy BufferOf<T> and be made from a number of elements; see rank/engine.hpp
#include "model.hpp"

#include "../concepts/least_engine.hpp"

template <class T>
struct Spanless : least::Buffer<T> {
    using least::Buffer<T>::Buffer;
#ifdef REJECT
    T* span() const { return nullptr; }
#endif
};
struct Violator : least::Talker {
    template <class T>
    using Buffer = Spanless<T>;
};
std::size_t size() { return sizeof(sk::Rank<Violator, sk::DeviceMesh<1>>); }
