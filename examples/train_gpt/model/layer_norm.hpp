// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>

#include "arena.hpp"
#include "convert.hpp"
#include "place.hpp"

namespace train_gpt {

/// Added to the variance before its square root, as in GPT-2.
inline constexpr double layer_norm_epsilon = 1e-5;

/// What a layer norm makes of some rows, and keeps for the backward pass.
template <class S>
struct Normed {
    Arithmetic<S>* mean;       // [rows]
    Arithmetic<S>* deviation;  // [rows], inverse
    S* out;                    // [rows, width]

    static Normed take(Arena& arena, std::size_t rows, std::size_t width) {
        return {arena.take<Arithmetic<S>>(rows), arena.take<Arithmetic<S>>(rows), arena.take<S>(rows * width)};
    }
};

/// As rows: y = (x - mean) / sqrt(variance + epsilon) * weight + bias; keeps what the backward pass needs.
template <class T, class S>
struct LayerNorm {
    using A = Arithmetic<S>;

    std::size_t width;
    const T* weight;
    const T* bias;
    const S* x;
    Normed<S> kept;

    template <class Row>
    constexpr void operator()(const Row& row, std::size_t r) const {
        const S* const in = x + r * width;
        S* const out = kept.out + r * width;
        const auto value = [&](std::size_t i) { return static_cast<A>(in[i]); };
        const auto count = static_cast<A>(width);
        const A m = row.template sum<A>(width, value) / count;
        const A variance =
            row.template sum<A>(width, [&](std::size_t i) { return (value(i) - m) * (value(i) - m); }) / count;
        const A s = A(1) / std::sqrt(variance + static_cast<A>(layer_norm_epsilon));
        row.each(width, [&](std::size_t i) {
            out[i] = static_cast<S>((value(i) - m) * s * static_cast<A>(weight[i]) + static_cast<A>(bias[i]));
        });
        row.once([&] {
            kept.mean[r] = m;
            kept.deviation[r] = s;
        });
    }
};

/// What a backward pass reads of row r.
template <class S, class A = Arithmetic<S>>
struct NormedRow {
    const S* in;
    A mean;
    A inverse_deviation;

    constexpr A operator()(std::size_t i) const { return (static_cast<A>(in[i]) - mean) * inverse_deviation; }
};

/// As rows: dx += the gradient at the input.
template <class T, class S>
struct LayerNormBackward {
    using A = Arithmetic<S>;

    std::size_t width;
    const T* weight;
    const S* x;
    Normed<S> kept;
    const S* dy;
    S* dx;

    template <class Row>
    constexpr void operator()(const Row& row, std::size_t r) const {
        const NormedRow<S> normal{x + r * width, kept.mean[r], kept.deviation[r]};
        const S* const upstream = dy + r * width;
        S* const out = dx + r * width;
        const auto scaled = [&](std::size_t i) { return static_cast<A>(upstream[i]) * static_cast<A>(weight[i]); };
        const auto count = static_cast<A>(width);
        const A average = row.template sum<A>(width, scaled) / count;
        const A projection = row.template sum<A>(width, [&](std::size_t i) { return scaled(i) * normal(i); }) / count;
        row.each(width, [&](std::size_t i) {
            out[i] = static_cast<S>(static_cast<A>(out[i]) +
                                    normal.inverse_deviation * (scaled(i) - average - normal(i) * projection));
        });
    }
};

/// As columns: the gradients of weight and bias, of a part of the rows. Shapes: sums [parts, 2 * width].
template <class S>
struct LayerNormSums {
    using A = Arithmetic<S>;

    static constexpr std::size_t columns_at_once = 32;

    std::size_t rows;
    std::size_t width;
    const S* x;
    Normed<S> kept;
    const S* dy;
    std::size_t parts;
    A* sums;

    template <class Columns>
    constexpr void operator()(const Columns& columns, std::size_t part) const {
        std::array<A, Columns::most> of_weight{};
        std::array<A, Columns::most> of_bias{};
        for (std::size_t r = part * rows / parts; r < (part + 1) * rows / parts; ++r) {
            const std::size_t first = r * width + columns.first;
            const NormedRow<S> normal{x + first, kept.mean[r], kept.deviation[r]};
            for (std::size_t j = 0; j < columns.count; ++j) {
                of_weight[j] += static_cast<A>(dy[first + j]) * normal(j);
                of_bias[j] += static_cast<A>(dy[first + j]);
            }
        }
        A* const to = sums + part * 2 * width + columns.first;
        for (std::size_t j = 0; j < columns.count; ++j) {
            to[j] = of_weight[j];
            to[width + j] = of_bias[j];
        }
    }
};

/// Shapes: x [rows, width]; weight, bias [width].
template <class T, class S, class Place = HostPlace>
void layer_norm_forward(std::size_t rows, std::size_t width, const T* weight, const T* bias, const S* x,
                        const Normed<S>& kept, const Place& place = {}) {
    place.rows(rows, LayerNorm<T, S>{width, weight, bias, x, kept});
}

/// dx += the gradient at the input, given dy at the output; the parameters' gradients are added to, unless they are
/// null. Shapes: as layer_norm_forward; sums [column_parts, 2 * width].
template <class T, class S, class Place = HostPlace>
void layer_norm_backward(std::size_t rows, std::size_t width, const T* weight, const S* x, const Normed<S>& kept,
                         const S* dy, S* dx, T* d_weight, T* d_bias, Arithmetic<S>* sums, const Place& place = {}) {
    place.rows(rows, LayerNormBackward<T, S>{width, weight, x, kept, dy, dx});
    if (d_weight == nullptr) { return; }
    constexpr std::size_t parts = Place::column_parts;
    place.columns(width, LayerNormSums<S>{rows, width, x, kept, dy, parts, sums});
    place.each(width, AddRounded<T>{d_weight, sums, parts, 2 * width});
    place.each(width, AddRounded<T>{d_bias, sums + width, parts, 2 * width});
}

}  // namespace train_gpt
