// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include "convert.hpp"
#include "matmul.hpp"

namespace train_gpt {

/// The extents of y = x W^T.
struct LinearShape {
    std::size_t rows;
    std::size_t inputs;
    std::size_t outputs;
};

/// y = x W^T.
/// Shapes: x [rows, inputs], W [outputs, inputs], y [rows, outputs]; scratch [outputs * inputs] where T needs
/// conversion, else unused.
template <class T, class A = Arithmetic<T>>
void linear_forward(LinearShape shape, const T* weight, const A* x, A* y, A* scratch) {
    const A* w = in_arithmetic(weight, shape.outputs * shape.inputs, scratch);
    matmul<A>(matrix(x, shape.rows, shape.inputs), transposed(matrix(w, shape.outputs, shape.inputs)),
              matrix(y, shape.rows, shape.outputs), Into::overwrite);
}

/// y[row] += b. Shapes: b [width], y [rows, width].
template <class T, class A = Arithmetic<T>>
void add_bias(std::size_t rows, std::size_t width, const T* bias, A* y) {
    for (std::size_t row = 0; row < rows; ++row) {
        A* out = y + row * width;
        for (std::size_t o = 0; o < width; ++o) { out[o] += static_cast<A>(bias[o]); }
    }
}

/// dx = dy W. Shapes and scratch as linear_forward.
template <class T, class A = Arithmetic<T>>
void input_gradient(LinearShape shape, const T* weight, const A* dy, A* dx, A* scratch) {
    const A* w = in_arithmetic(weight, shape.outputs * shape.inputs, scratch);
    matmul<A>(matrix(dy, shape.rows, shape.outputs), matrix(w, shape.outputs, shape.inputs),
              matrix(dx, shape.rows, shape.inputs), Into::overwrite);
}

/// dW += dy^T x, or dW = dy^T x, summed in the arithmetic type. Shapes and scratch as linear_forward.
template <class T, class A = Arithmetic<T>>
void weight_gradient(LinearShape shape, const A* x, const A* dy, T* d_weight, Into into,
                     [[maybe_unused]] A* scratch) {
    const auto factor = transposed(matrix(dy, shape.rows, shape.outputs));
    const auto input = matrix(x, shape.rows, shape.inputs);
    if constexpr (needs_conversion<T>) {
        matmul<A>(factor, input, matrix(scratch, shape.outputs, shape.inputs), Into::overwrite);
        const std::size_t count = shape.outputs * shape.inputs;
        if (into == Into::overwrite) {
            std::transform(scratch, scratch + count, d_weight, [](A value) { return static_cast<T>(value); });
        } else {
            add_rounded(d_weight, scratch, count);
        }
    } else {
        matmul<A>(factor, input, matrix(d_weight, shape.outputs, shape.inputs), into);
    }
}

/// db += the sum over rows of dy. Shapes: dy [rows, width], db [width], or null where this rank adds nothing; sums
/// [width].
template <class T, class A = Arithmetic<T>>
void bias_gradient(std::size_t rows, std::size_t width, const A* dy, T* d_bias, A* sums) {
    if (d_bias == nullptr) { return; }
    std::fill_n(sums, width, A{0});
    for (std::size_t row = 0; row < rows; ++row) {
        const A* in = dy + row * width;
        for (std::size_t o = 0; o < width; ++o) { sums[o] += in[o]; }
    }
    add_rounded(d_bias, sums, width);
}

}  // namespace train_gpt
