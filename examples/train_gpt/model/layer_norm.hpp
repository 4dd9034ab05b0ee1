// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "convert.hpp"
#include "lanes.hpp"

namespace train_gpt {

/// Added to the variance before its square root, as in GPT-2.
inline constexpr double layer_norm_epsilon = 1e-5;

/// y = (x - mean) / sqrt(variance + epsilon) * weight + bias, row by row; keeps what the backward pass needs.
/// Shapes: x, y [rows, width]; weight, bias [width]; mean, inverse_deviation [rows].
template <class T, class A = Arithmetic<T>>
void layer_norm_forward(std::size_t rows, std::size_t width, const T* weight, const T* bias, const A* x, A* y,
                        A* mean, A* inverse_deviation) {
    for (std::size_t row = 0; row < rows; ++row) {
        const A* in = x + row * width;
        A* out = y + row * width;
        const A m = lane_sum<A>(width, [&](std::size_t i) { return in[i]; }) / static_cast<A>(width);
        const A variance =
            lane_sum<A>(width, [&](std::size_t i) { return (in[i] - m) * (in[i] - m); }) / static_cast<A>(width);
        const A s = A(1) / std::sqrt(variance + static_cast<A>(layer_norm_epsilon));
        for (std::size_t i = 0; i < width; ++i) {
            out[i] = (in[i] - m) * s * static_cast<A>(weight[i]) + static_cast<A>(bias[i]);
        }
        mean[row] = m;
        inverse_deviation[row] = s;
    }
}

/// dx += the gradient at the input, given dy at the output; the parameters' gradients are added to, unless they are
/// null. Shapes: as layer_norm_forward; sums [2 * width].
template <class T, class A = Arithmetic<T>>
void layer_norm_backward(std::size_t rows, std::size_t width, const T* weight, const A* x, const A* mean,
                         const A* inverse_deviation, const A* dy, A* dx, T* d_weight, T* d_bias, A* sums) {
    std::fill_n(sums, 2 * width, A{0});
    A* weight_sums = sums;
    A* bias_sums = sums + width;
    for (std::size_t row = 0; row < rows; ++row) {
        const A* in = x + row * width;
        const A* upstream = dy + row * width;
        A* out = dx + row * width;
        const A m = mean[row];
        const A s = inverse_deviation[row];
        const auto scaled = [&](std::size_t i) { return upstream[i] * static_cast<A>(weight[i]); };
        const auto normal = [&](std::size_t i) { return (in[i] - m) * s; };
        const A count = static_cast<A>(width);
        const A average = lane_sum<A>(width, scaled) / count;
        const A projection = lane_sum<A>(width, [&](std::size_t i) { return scaled(i) * normal(i); }) / count;
        for (std::size_t i = 0; i < width; ++i) {
            const A x_hat = normal(i);
            out[i] += s * (scaled(i) - average - x_hat * projection);
            weight_sums[i] += upstream[i] * x_hat;
            bias_sums[i] += upstream[i];
        }
    }
    if (d_weight == nullptr) { return; }
    add_rounded(d_weight, weight_sums, width);
    add_rounded(d_bias, bias_sums, width);
}

}  // namespace train_gpt
