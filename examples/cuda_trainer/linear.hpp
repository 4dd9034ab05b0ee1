// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "gpu.hpp"

/// Row-major matrices through cuBLAS, which takes them for their transposes. y [rows, outputs] = x [rows, inputs] *
/// transpose of w [outputs, inputs].
namespace cuda_trainer {

inline cublasStatus_t gemm(cublasHandle_t blas, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n, int k,
                           const float* alpha, const float* a, int lda, const float* b, int ldb, const float* beta,
                           float* c, int ldc) {
    return cublasSgemm(blas, a_op, b_op, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
inline cublasStatus_t gemm(cublasHandle_t blas, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n, int k,
                           const double* alpha, const double* a, int lda, const double* b, int ldb,
                           const double* beta, double* c, int ldc) {
    return cublasDgemm(blas, a_op, b_op, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

struct Extents {
    Extents(std::size_t r, std::size_t i, std::size_t o)
        : rows(static_cast<int>(r)), inputs(static_cast<int>(i)), outputs(static_cast<int>(o)) {}
    int rows;
    int inputs;
    int outputs;
};

template <class T>
void linear(const Gpu& gpu, Extents e, const T* x, const T* w, T* y) {
    const T one = 1;
    const T zero = 0;
    check(gemm(gpu.blas, CUBLAS_OP_T, CUBLAS_OP_N, e.outputs, e.rows, e.inputs, &one, w, e.inputs, x, e.inputs, &zero,
               y, e.outputs),
          "gemm");
}

/// dx = dy * w + keep * dx
template <class T>
void linear_backward_input(const Gpu& gpu, Extents e, const T* dy, const T* w, T keep, T* dx) {
    const T one = 1;
    check(gemm(gpu.blas, CUBLAS_OP_N, CUBLAS_OP_N, e.inputs, e.rows, e.outputs, &one, w, e.inputs, dy, e.outputs,
               &keep, dx, e.inputs),
          "gemm");
}

/// dw += transpose of dy * x
template <class T>
void linear_backward_weight(const Gpu& gpu, Extents e, const T* dy, const T* x, T* dw) {
    const T one = 1;
    check(gemm(gpu.blas, CUBLAS_OP_N, CUBLAS_OP_T, e.inputs, e.outputs, e.rows, &one, x, e.inputs, dy, e.outputs,
               &one, dw, e.inputs),
          "gemm");
}

}  // namespace cuda_trainer
