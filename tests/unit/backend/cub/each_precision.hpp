// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <shardkit/core/element.hpp>

#include "../../../gpu/instantiate_each_precision.hpp"
#include "../../../test_size.hpp"
#include "../host/kernel_data.hpp"

namespace shardkit::test {

template <class T>
struct Type {
    using type = T;
};

/// f(Type<T>{}) for each floating element type.
template <class F>
void each_floating(const F& f) {
    f(Type<double>{});
    f(Type<float>{});
    f(Type<bf16>{});
    f(Type<fp16>{});
}

/// f(Type<Master>{}, Type<Gather>{}, Type<Gradient>{}) for combinations in which every two types stand in every two
/// places.
template <class F>
void each_precision(const F& f) {
#define CALL(Master, Gather, Gradient) f(Type<Master>{}, Type<Gather>{}, Type<Gradient>{});
    EACH_PRECISION(CALL)
#undef CALL
}

/// Numbers of elements: around none, one and several vectors, and more than one block of threads.
inline std::vector<std::size_t> sizes() {
    if (test_size::reduced()) { return {0, 1, 5, 33, 1023}; }
    return {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 100, 1023, 5000};
}

/// Where the arrays of a pass start: elements behind an aligned address, for the first, the second, ... array.
struct Offsets {
    std::vector<std::size_t> of;
    std::size_t operator[](std::size_t i) const { return of[i % of.size()]; }
};

/// Aligned; all misaligned alike, so that packs can be used behind a head; unlike.
inline std::vector<Offsets> offsets() { return {{{0}}, {{1}}, {{3}}, {{6}}, {{0, 1}}, {{2, 0, 1, 0, 3}}}; }

}  // namespace shardkit::test
