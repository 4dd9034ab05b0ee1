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
    static constexpr S of(S element) {
        const A v = static_cast<A>(element);
        return static_cast<S>(A(0.5) * v * (A(1) + tangent(v)));
    }
    constexpr void operator()(std::size_t i) const { y[i] = of(x[i]); }
    constexpr void pack(std::size_t p) const {
        auto pack = packs(x)[p];
        for (S& element : pack.lane) { element = of(element); }
        packs(y)[p] = pack;
    }
};

/// As each: d becomes d times the slope of GELU at x.
template <class S, class A = Arithmetic<S>>
struct GeluBackward {
    const S* x;
    S* d;

    static constexpr S of(S element, S gradient) {
        const A v = static_cast<A>(element);
        const A t = Gelu<S>::tangent(v);
        const A inner = A(gelu_slope) * (A(1) + A(3 * gelu_cubic) * v * v);
        return static_cast<S>(static_cast<A>(gradient) * (A(0.5) * (A(1) + t) + A(0.5) * v * (A(1) - t * t) * inner));
    }
    constexpr void operator()(std::size_t i) const { d[i] = of(x[i], d[i]); }
    constexpr void pack(std::size_t p) const {
        const auto at = packs(x)[p];
        auto gradients = packs(d)[p];
        for (std::size_t i = 0; i < at.lanes; ++i) { gradients.lane[i] = of(at.lane[i], gradients.lane[i]); }
        packs(d)[p] = gradients;
    }
};

}  // namespace train_gpt
