// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <numbers>

#include "exponential.hpp"
#include "place.hpp"

namespace train_gpt {

/// sqrt(2 / pi) and the cubic coefficient of the tanh approximation that GPT-2 uses.
inline constexpr double gelu_slope = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
inline constexpr double gelu_cubic = 0.044715;

/// As each: y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
template <class A>
struct Gelu {
    const A* x;
    A* y;

    static constexpr A tangent(A v) { return hyperbolic_tangent(A(gelu_slope) * (v + A(gelu_cubic) * v * v * v)); }
    constexpr void operator()(std::size_t i) const {
        const A v = x[i];
        y[i] = A(0.5) * v * (A(1) + tangent(v));
    }
};

/// As each: d becomes d times the slope of GELU at x.
template <class A>
struct GeluBackward {
    const A* x;
    A* d;

    constexpr void operator()(std::size_t i) const {
        const A v = x[i];
        const A t = Gelu<A>::tangent(v);
        const A inner = A(gelu_slope) * (A(1) + A(3 * gelu_cubic) * v * v);
        d[i] *= A(0.5) * (A(1) + t) + A(0.5) * v * (A(1) - t * t) * inner;
    }
};

template <class A, class Place = HostPlace>
void gelu_forward(std::size_t count, const A* x, A* y, const Place& place = {}) {
    place.each(count, Gelu<A>{x, y});
}
template <class A, class Place = HostPlace>
void gelu_backward_in_place(std::size_t count, const A* x, A* d, const Place& place = {}) {
    place.each(count, GeluBackward<A>{x, d});
}

}  // namespace train_gpt
