// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace shardkit::host {

/// Bytes of the vector registers that the loops run on. Not 64 where the machine has them: the loops wait
/// for memory, and several machines clock down for the widest registers.
#if defined(__AVX__)
inline constexpr std::size_t register_bytes = 32;
#else
inline constexpr std::size_t register_bytes = 16;
#endif

template <class T, std::size_t Count>
struct VectorOf {
    typedef T type __attribute__((vector_size(Count * sizeof(T))));
};

/// `Count` values of T side by side: a short vector as GCC and clang define it.
template <class T, std::size_t Count>
using Vector = typename VectorOf<T, Count>::type;

/// One register of arithmetic values; the type that kernels' functors run on. Every operation is lane by
/// lane, so a lane's result does not depend on its position or on its neighbours.
/// A struct, so that functors find square_root by argument-dependent lookup.
template <std::floating_point A>
struct Lanes {
    static constexpr std::size_t count = register_bytes / sizeof(A);

    Vector<A, count> values;

    friend Lanes operator+(Lanes a, Lanes b) { return {a.values + b.values}; }
    friend Lanes operator-(Lanes a, Lanes b) { return {a.values - b.values}; }
    friend Lanes operator*(Lanes a, Lanes b) { return {a.values * b.values}; }
    friend Lanes operator/(Lanes a, Lanes b) { return {a.values / b.values}; }
    friend Lanes operator+(Lanes a, A b) { return {a.values + b}; }
    friend Lanes operator*(Lanes a, A b) { return {a.values * b}; }
    friend Lanes operator*(A a, Lanes b) { return {a * b.values}; }
};

// std::sqrt may set errno, so no compiler makes one vector instruction of a loop over it at default flags;
// the instruction has to be named. Elsewhere the loop is right and merely slower.
#if defined(__AVX__)
inline Lanes<float> square_root(Lanes<float> a) { return {Vector<float, 8>(_mm256_sqrt_ps(a.values))}; }
inline Lanes<double> square_root(Lanes<double> a) { return {Vector<double, 4>(_mm256_sqrt_pd(a.values))}; }
#elif defined(__SSE2__)
inline Lanes<float> square_root(Lanes<float> a) { return {Vector<float, 4>(_mm_sqrt_ps(a.values))}; }
inline Lanes<double> square_root(Lanes<double> a) { return {Vector<double, 2>(_mm_sqrt_pd(a.values))}; }
#else
template <std::floating_point A>
Lanes<A> square_root(Lanes<A> a) {
    for (std::size_t i = 0; i < Lanes<A>::count; ++i) { a.values[i] = std::sqrt(a.values[i]); }
    return a;
}
#endif

}  // namespace shardkit::host
