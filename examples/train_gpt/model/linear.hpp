// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>

#include "convert.hpp"
#include "gelu.hpp"
#include "matrix.hpp"
#include "place.hpp"

namespace train_gpt {

/// The extents of y = x W^T, or of so many of them that lie one behind the other.
struct LinearShape {
    std::size_t rows;
    std::size_t inputs;
    std::size_t outputs;
    std::size_t count = 1;

    constexpr std::size_t weights() const noexcept { return count * outputs * inputs; }
};

/// y = x W^T.
/// Shapes: x [rows, inputs], W [outputs, inputs], y [rows, outputs]; scratch [weights()] where T needs conversion,
/// else unused.
template <class T, class S, class R, class Place = HostPlace>
void linear_forward(LinearShape shape, const T* weight, const S* x, R* y, Arithmetic<T>* scratch,
                    const Place& place = {}) {
    const S* w = as_stored<S>(weight, shape.weights(), scratch, place);
    place.template multiply<S>(matrix(x, shape.rows, shape.inputs),
                               transposed(matrix(w, shape.outputs, shape.inputs)),
                               matrix(y, shape.rows, shape.outputs), Into::overwrite, Arithmetic<S>{1}, shape.count);
}

/// As rows: y += b, and then the input of the residual stream, where there is one.
template <class T, class S>
struct AddBias {
    using A = Arithmetic<S>;

    std::size_t width;
    const T* bias;
    const S* input;  // or null
    S* y;

    template <class Row>
    constexpr void operator()(const Row& row, std::size_t r) const {
        S* const out = y + r * width;
        const auto biased = [&](std::size_t o) { return static_cast<A>(out[o]) + static_cast<A>(bias[o]); };
        if (input == nullptr) {
            row.each(width, [&](std::size_t o) { out[o] = static_cast<S>(biased(o)); });
        } else {
            const S* const in = input + r * width;
            row.each(width, [&](std::size_t o) { out[o] = static_cast<S>(biased(o) + static_cast<A>(in[o])); });
        }
    }
};

/// y = x W^T + b and, where `gelu` is not null, gelu = GELU(y). Shapes and scratch as linear_forward.
template <class T, class S, class Place>
void biased_forward(LinearShape shape, const T* weight, const T* bias, const S* x, S* y, S* gelu,
                    Arithmetic<T>* scratch, const Place& place) {
    if constexpr (std::same_as<S, T>) {
        if (place.multiply_biased(matrix(x, shape.rows, shape.inputs),
                                  transposed(matrix(weight, shape.outputs, shape.inputs)), bias,
                                  matrix(y, shape.rows, shape.outputs), gelu)) {
            return;
        }
    }
    linear_forward(shape, weight, x, y, scratch, place);
    place.rows(shape.rows, AddBias<T, S>{shape.outputs, bias, nullptr, y});
    if (gelu != nullptr) { place.each(shape.rows * shape.outputs, Gelu<S>{y, gelu}); }
}

/// dx = dy W and, where x is the GELU of `before`, times its slope there. Shapes and scratch as linear_forward.
template <class T, class S, class R, class Place = HostPlace>
void input_gradient(LinearShape shape, const T* weight, const S* dy, R* dx, Arithmetic<T>* scratch,
                    const Place& place = {}, const R* before = nullptr) {
    const auto gradient = matrix(dy, shape.rows, shape.outputs);
    const auto result = matrix(dx, shape.rows, shape.inputs);
    if constexpr (std::same_as<S, T> && std::same_as<R, T>) {
        const auto w = matrix(weight, shape.outputs, shape.inputs);
        if (before != nullptr && place.multiply_by_gelu_slope(gradient, w, before, result)) { return; }
    }
    const S* w = as_stored<S>(weight, shape.weights(), scratch, place);
    place.template multiply<S>(gradient, matrix(w, shape.outputs, shape.inputs), result, Into::overwrite,
                               Arithmetic<S>{1}, shape.count);
    if (before != nullptr) { place.each(shape.rows * shape.inputs, GeluBackward<R>{before, dx}); }
}

/// dW += dy^T x, or dW = dy^T x, summed in the arithmetic type. Shapes and scratch as linear_forward.
template <class T, class S, class Place = HostPlace>
void weight_gradient(LinearShape shape, const S* x, const S* dy, T* d_weight, Into into,
                     [[maybe_unused]] Arithmetic<T>* scratch, const Place& place = {}) {
    const auto factor = transposed(matrix(dy, shape.rows, shape.outputs));
    const auto input = matrix(x, shape.rows, shape.inputs);
    const auto multiply = [&](S* result, Into how) {
        place.template multiply<S>(factor, input, matrix(result, shape.outputs, shape.inputs), how);
    };
    if constexpr (!std::same_as<S, T>) {
        multiply(scratch, Into::overwrite);
        const std::size_t count = shape.outputs * shape.inputs;
        if (into == Into::overwrite) {
            place.each(count, Convert<S, T>{scratch, d_weight});
        } else {
            add_rounded(d_weight, scratch, count, place);
        }
    } else {
        multiply(d_weight, into);
    }
}

/// As columns: the sums over a part of the rows of dy. Shapes: dy [rows, width], sums [parts, width].
template <class S>
struct ColumnSums {
    using A = Arithmetic<S>;

    static constexpr std::size_t columns_at_once = 32;

    std::size_t rows;
    std::size_t width;
    const S* dy;
    std::size_t parts;
    A* sums;

    template <class Columns>
    constexpr void operator()(const Columns& columns, std::size_t part) const {
        std::array<A, Columns::most> sum{};
        for (std::size_t r = part * rows / parts; r < (part + 1) * rows / parts; ++r) {
            const S* const in = dy + r * width + columns.first;
            for (std::size_t j = 0; j < columns.count; ++j) { sum[j] += static_cast<A>(in[j]); }
        }
        A* const to = sums + part * width + columns.first;
        for (std::size_t j = 0; j < columns.count; ++j) { to[j] = sum[j]; }
    }
};

/// db += the sum over rows of dy. Shapes: dy [rows, width], db [width], or null where this rank adds nothing; sums
/// [column_parts, width].
template <class T, class S, class Place>
void bias_gradient(std::size_t rows, std::size_t width, const S* dy, T* d_bias, Arithmetic<S>* sums,
                   const Place& place) {
    if (d_bias == nullptr) { return; }
    constexpr std::size_t parts = Place::column_parts;
    place.columns(width, ColumnSums<S>{rows, width, dy, parts, sums});
    place.each(width, AddRounded<T>{d_bias, sums, parts, width});
}

}  // namespace train_gpt
