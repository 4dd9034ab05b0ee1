// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>

#include "gpu.hpp"

/// Row-major matrices through cuBLAS, which takes them for their transposes. y [rows, outputs] = x [rows, inputs] *
/// transpose of w [outputs, inputs].
namespace cuda_trainer {

struct Extents {
    Extents(std::size_t r, std::size_t i, std::size_t o)
        : rows(static_cast<int>(r)), inputs(static_cast<int>(i)), outputs(static_cast<int>(o)) {}
    int rows;
    int inputs;
    int outputs;
};

/// c [n, m] = b * a + keep * c as cuBLAS sees them, k numbers of each in a sum.
template <class T>
void multiply(const Gpu& gpu, cublasOperation_t of_a, cublasOperation_t of_b, int m, int n, int k, const T* a,
              int lda, const T* b, int ldb, T keep, T* c) {
    const T one = 1;
    const auto call = [&](auto gemm) {
        check(gemm(gpu.blas, of_a, of_b, m, n, k, &one, a, lda, b, ldb, &keep, c, m), "gemm");
    };
    if constexpr (std::is_same_v<T, float>) {
        call(cublasSgemm);
    } else {
        call(cublasDgemm);
    }
}

template <class T>
void linear(const Gpu& gpu, Extents e, const T* x, const T* w, T* y) {
    multiply(gpu, CUBLAS_OP_T, CUBLAS_OP_N, e.outputs, e.rows, e.inputs, w, e.inputs, x, e.inputs, T{0}, y);
}
/// dx = dy * w + keep * dx
template <class T>
void linear_backward_input(const Gpu& gpu, Extents e, const T* dy, const T* w, T keep, T* dx) {
    multiply(gpu, CUBLAS_OP_N, CUBLAS_OP_N, e.inputs, e.rows, e.outputs, w, e.inputs, dy, e.outputs, keep, dx);
}
/// dw += transpose of dy * x
template <class T>
void linear_backward_weight(const Gpu& gpu, Extents e, const T* dy, const T* x, T* dw) {
    multiply(gpu, CUBLAS_OP_N, CUBLAS_OP_T, e.inputs, e.outputs, e.rows, x, e.inputs, dy, e.outputs, T{1}, dw);
}

}  // namespace cuda_trainer
