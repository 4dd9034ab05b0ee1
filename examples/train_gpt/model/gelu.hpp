// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <numbers>

#include "convert.hpp"
#include "exponential.hpp"
#include "place.hpp"

namespace train_gpt {

/// sqrt(2 / pi) and the cubic coefficient of the tanh approximation that GPT-2 uses.
inline constexpr double gelu_slope = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
inline constexpr double gelu_cubic = 0.044715;

/// As each: y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
template <class S, class A = Arithmetic<S>>
struct Gelu {
    const S* x;
    S* y;

    static constexpr A tangent(A v) { return hyperbolic_tangent(A(gelu_slope) * (v + A(gelu_cubic) * v * v * v)); }
    constexpr void operator()(std::size_t i) const {
        const A v = static_cast<A>(x[i]);
        y[i] = static_cast<S>(A(0.5) * v * (A(1) + tangent(v)));
    }
};

/// As each: d becomes d times the slope of GELU at x.
template <class S, class A = Arithmetic<S>>
struct GeluBackward {
    const S* x;
    S* d;

    constexpr void operator()(std::size_t i) const {
        const A v = static_cast<A>(x[i]);
        const A t = Gelu<S>::tangent(v);
        const A inner = A(gelu_slope) * (A(1) + A(3 * gelu_cubic) * v * v);
        d[i] = static_cast<S>(static_cast<A>(d[i]) * (A(0.5) * (A(1) + t) + A(0.5) * v * (A(1) - t * t) * inner));
    }
};

template <class S, class Place = HostPlace>
void gelu_forward(std::size_t count, const S* x, S* y, const Place& place = {}) {
    place.each(count, Gelu<S>{x, y});
}
template <class S, class Place = HostPlace>
void gelu_backward_in_place(std::size_t count, const S* x, S* d, const Place& place = {}) {
    place.each(count, GeluBackward<S>{x, d});
}

}  // namespace train_gpt
