// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include "convert.hpp"
#include "matmul.hpp"

namespace train_gpt {

/// The extents of y = x W^T + b.
struct LinearShape {
    std::size_t rows;
    std::size_t inputs;
    std::size_t outputs;
};

/// y = x W^T + b.
/// Shapes: x [rows, inputs], W [outputs, inputs], b [outputs], y [rows, outputs]; scratch [outputs * inputs]
/// where T needs conversion, else unused.
template <class T, class A = Arithmetic<T>>
void linear_forward(LinearShape shape, const T* weight, const T* bias, const A* x, A* y, A* scratch) {
    for (std::size_t row = 0; row < shape.rows; ++row) {
        A* out = y + row * shape.outputs;
        for (std::size_t o = 0; o < shape.outputs; ++o) { out[o] = static_cast<A>(bias[o]); }
    }
    const A* w = in_arithmetic(weight, shape.outputs * shape.inputs, scratch);
    matmul<A>(matrix(x, shape.rows, shape.inputs), transposed(matrix(w, shape.outputs, shape.inputs)),
              matrix(y, shape.rows, shape.outputs), Into::add);
}

/// dW += dy^T x, summed in the arithmetic type. Shapes and scratch as linear_forward.
template <class T, class A = Arithmetic<T>>
void weight_gradient(LinearShape shape, const A* x, const A* dy, T* d_weight, [[maybe_unused]] A* scratch) {
    const auto factor = transposed(matrix(dy, shape.rows, shape.outputs));
    const auto input = matrix(x, shape.rows, shape.inputs);
    if constexpr (needs_conversion<T>) {
        matmul<A>(factor, input, matrix(scratch, shape.outputs, shape.inputs), Into::overwrite);
        add_rounded(d_weight, scratch, shape.outputs * shape.inputs);
    } else {
        matmul<A>(factor, input, matrix(d_weight, shape.outputs, shape.inputs), Into::add);
    }
}

/// dx = dy W, dW += dy^T x, db += sum over rows of dy.
/// Shapes: as linear_forward; sums [outputs]. `dx` is overwritten, the gradients are added to.
template <class T, class A = Arithmetic<T>>
void linear_backward(LinearShape shape, const T* weight, const A* x, const A* dy, A* dx, T* d_weight, T* d_bias,
                     A* scratch, A* sums) {
    const A* w = in_arithmetic(weight, shape.outputs * shape.inputs, scratch);
    matmul<A>(matrix(dy, shape.rows, shape.outputs), matrix(w, shape.outputs, shape.inputs),
              matrix(dx, shape.rows, shape.inputs), Into::overwrite);
    weight_gradient(shape, x, dy, d_weight, scratch);
    std::fill_n(sums, shape.outputs, A{0});
    for (std::size_t row = 0; row < shape.rows; ++row) {
        const A* in = dy + row * shape.outputs;
        for (std::size_t o = 0; o < shape.outputs; ++o) { sums[o] += in[o]; }
    }
    add_rounded(d_bias, sums, shape.outputs);
}

}  // namespace train_gpt
