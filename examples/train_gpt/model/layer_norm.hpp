// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>

#include "convert.hpp"
#include "place.hpp"

namespace train_gpt {

/// Added to the variance before its square root, as in GPT-2.
inline constexpr double layer_norm_epsilon = 1e-5;

/// As rows: y = (x - mean) / sqrt(variance + epsilon) * weight + bias; keeps what the backward pass needs.
template <class T, class A>
struct LayerNorm {
    std::size_t width;
    const T* weight;
    const T* bias;
    const A* x;
    A* y;
    A* mean;
    A* inverse_deviation;

    template <class Row>
    constexpr void operator()(const Row& row, std::size_t r) const {
        const A* const in = x + r * width;
        A* const out = y + r * width;
        const auto count = static_cast<A>(width);
        const A m = row.template sum<A>(width, [&](std::size_t i) { return in[i]; }) / count;
        const A variance =
            row.template sum<A>(width, [&](std::size_t i) { return (in[i] - m) * (in[i] - m); }) / count;
        const A s = A(1) / std::sqrt(variance + static_cast<A>(layer_norm_epsilon));
        row.each(width, [&](std::size_t i) {
            out[i] = (in[i] - m) * s * static_cast<A>(weight[i]) + static_cast<A>(bias[i]);
        });
        row.once([&] {
            mean[r] = m;
            inverse_deviation[r] = s;
        });
    }
};

/// What a backward pass reads of row r.
template <class A>
struct NormedRow {
    const A* in;
    A mean;
    A inverse_deviation;

    constexpr A operator()(std::size_t i) const { return (in[i] - mean) * inverse_deviation; }
};

/// As rows: dx += the gradient at the input.
template <class T, class A>
struct LayerNormBackward {
    std::size_t width;
    const T* weight;
    const A* x;
    const A* mean;
    const A* inverse_deviation;
    const A* dy;
    A* dx;

    template <class Row>
    constexpr void operator()(const Row& row, std::size_t r) const {
        const NormedRow<A> normal{x + r * width, mean[r], inverse_deviation[r]};
        const A* const upstream = dy + r * width;
        A* const out = dx + r * width;
        const auto scaled = [&](std::size_t i) { return upstream[i] * static_cast<A>(weight[i]); };
        const auto count = static_cast<A>(width);
        const A average = row.template sum<A>(width, scaled) / count;
        const A projection = row.template sum<A>(width, [&](std::size_t i) { return scaled(i) * normal(i); }) / count;
        row.each(width, [&](std::size_t i) {
            out[i] += normal.inverse_deviation * (scaled(i) - average - normal(i) * projection);
        });
    }
};

/// As columns: the gradients of weight and bias, of a part of the rows. Shapes: sums [parts, 2 * width].
template <class A>
struct LayerNormSums {
    static constexpr std::size_t columns_at_once = 32;

    std::size_t rows;
    std::size_t width;
    const A* x;
    const A* mean;
    const A* inverse_deviation;
    const A* dy;
    std::size_t parts;
    A* sums;

    template <class Columns>
    constexpr void operator()(const Columns& columns, std::size_t part) const {
        std::array<A, Columns::most> of_weight{};
        std::array<A, Columns::most> of_bias{};
        for (std::size_t r = part * rows / parts; r < (part + 1) * rows / parts; ++r) {
            const std::size_t first = r * width + columns.first;
            const NormedRow<A> normal{x + first, mean[r], inverse_deviation[r]};
            for (std::size_t j = 0; j < columns.count; ++j) {
                of_weight[j] += dy[first + j] * normal(j);
                of_bias[j] += dy[first + j];
            }
        }
        A* const to = sums + part * 2 * width + columns.first;
        for (std::size_t j = 0; j < columns.count; ++j) {
            to[j] = of_weight[j];
            to[width + j] = of_bias[j];
        }
    }
};

/// Shapes: x, y [rows, width]; weight, bias [width]; mean, inverse_deviation [rows].
template <class T, class A = Arithmetic<T>, class Place = HostPlace>
void layer_norm_forward(std::size_t rows, std::size_t width, const T* weight, const T* bias, const A* x, A* y,
                        A* mean, A* inverse_deviation, const Place& place = {}) {
    place.rows(rows, LayerNorm<T, A>{width, weight, bias, x, y, mean, inverse_deviation});
}

/// dx += the gradient at the input, given dy at the output; the parameters' gradients are added to, unless they are
/// null. Shapes: as layer_norm_forward; sums [column_parts, 2 * width].
template <class T, class A = Arithmetic<T>, class Place = HostPlace>
void layer_norm_backward(std::size_t rows, std::size_t width, const T* weight, const A* x, const A* mean,
                         const A* inverse_deviation, const A* dy, A* dx, T* d_weight, T* d_bias, A* sums,
                         const Place& place = {}) {
    place.rows(rows, LayerNormBackward<T, A>{width, weight, x, mean, inverse_deviation, dy, dx});
    if (d_weight == nullptr) { return; }
    constexpr std::size_t parts = Place::column_parts;
    place.columns(width, LayerNormSums<A>{rows, width, x, mean, inverse_deviation, dy, parts, sums});
    place.each(width, AddRounded<T>{d_weight, sums, parts, 2 * width});
    place.each(width, AddRounded<T>{d_bias, sums + width, parts, 2 * width});
}

}  // namespace train_gpt
