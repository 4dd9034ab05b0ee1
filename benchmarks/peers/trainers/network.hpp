// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>

/// What both trainers train: a network of two layers that learns y = sin(3 x0) x1, as plain loops over memory.
namespace trainer {

inline constexpr std::size_t ranks = 2;
inline constexpr std::size_t inputs = 2;
inline constexpr std::size_t hidden = 32;
inline constexpr std::size_t batch = 32;  // per rank
inline constexpr int steps = 400;
inline constexpr double learning_rate = 1e-2;
inline constexpr double clip = 1;

/// Adds to the gradients of one batch, returns its loss.
inline float forward_backward(const float* w1, const float* b1, const float* w2, float* dw1, float* db1, float* dw2,
                              std::size_t first_sample) {
    float loss = 0;
    for (std::size_t s = 0; s < batch; ++s) {
        const auto n = static_cast<float>(first_sample + s);
        const std::array<float, inputs> x{std::sin(1.7F * n), std::cos(2.3F * n)};
        std::array<float, hidden> h{};
        float y = 0;
        for (std::size_t j = 0; j < hidden; ++j) {
            h[j] = std::tanh(w1[j * inputs] * x[0] + w1[j * inputs + 1] * x[1] + b1[j]);
            y += w2[j] * h[j];
        }
        const float error = y - std::sin(3 * x[0]) * x[1];
        loss += error * error / static_cast<float>(batch);
        const float dy = 2 * error / static_cast<float>(batch);
        for (std::size_t j = 0; j < hidden; ++j) {
            const float dz = dy * w2[j] * (1 - h[j] * h[j]);
            dw2[j] += dy * h[j];
            db1[j] += dz;
            dw1[j * inputs] += dz * x[0];
            dw1[j * inputs + 1] += dz * x[1];
        }
    }
    return loss;
}

/// Where training begins: element i of the weights.
inline double initial_value(bool second_layer, std::size_t i) {
    return std::sin(7.0 * static_cast<double>(i) + (second_layer ? 1 : 0));
}

}  // namespace trainer
