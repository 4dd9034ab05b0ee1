// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <numbers>

#include "exponential.hpp"

namespace train_gpt {

/// sqrt(2 / pi) and the cubic coefficient of the tanh approximation that GPT-2 uses.
inline constexpr double gelu_slope = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
inline constexpr double gelu_cubic = 0.044715;

/// y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), element by element.
template <class A>
void gelu_forward(std::size_t count, const A* x, A* y) {
    for (std::size_t i = 0; i < count; ++i) {
        const A v = x[i];
        const A t = hyperbolic_tangent(A(gelu_slope) * (v + A(gelu_cubic) * v * v * v));
        y[i] = A(0.5) * v * (A(1) + t);
    }
}

/// d[i] becomes d[i] times the slope of GELU at x[i].
template <class A>
void gelu_backward_in_place(std::size_t count, const A* x, A* d) {
    for (std::size_t i = 0; i < count; ++i) {
        const A v = x[i];
        const A t = hyperbolic_tangent(A(gelu_slope) * (v + A(gelu_cubic) * v * v * v));
        const A inner = A(gelu_slope) * (A(1) + A(3 * gelu_cubic) * v * v);
        d[i] *= A(0.5) * (A(1) + t) + A(0.5) * v * (A(1) - t * t) * inner;
    }
}

}  // namespace train_gpt
