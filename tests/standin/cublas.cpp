// SPDX-License-Identifier: Apache-2.0
#include <cublas_v2.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include <shardkit/core/bf16.hpp>

#include "state.hpp"

/// The stream that a handle's work goes to, and the memory that the user lent it.
struct cublasContext {
    cudaStream_t stream = nullptr;
    void* workspace = nullptr;
    std::size_t workspace_bytes = 0;
};

namespace standin {
namespace {

/// A matrix in columns, as cuBLAS has them, or its transpose.
template <class T>
struct Factor {
    const T* data;
    std::size_t row_step, column_step;

    bool in_bf16 = false;

    T operator()(std::size_t row, std::size_t column) const {
        const T element = data[row * row_step + column * column_step];
        return in_bf16 ? static_cast<T>(static_cast<float>(shardkit::bf16(static_cast<float>(element)))) : element;
    }
};

template <class T>
Factor<T> factor(cublasOperation_t op, const T* data, int leading) {
    const auto step = static_cast<std::size_t>(leading);
    return op == CUBLAS_OP_N ? Factor<T>{data, 1, step} : Factor<T>{data, step, 1};
}

/// Which elements of the result are read and written.
enum class Part : unsigned char { all, lower, upper };

/// c = alpha * a * b + beta * c; what c held is not read when beta is 0, as in cuBLAS.
template <class T>
struct Gemm {
    std::size_t m, n, k;
    T alpha, beta;
    Factor<T> a, b;
    T* c;
    std::size_t ldc;
    cublasContext handle;
    Part part = Part::all;

    void operator()() const {
        const std::size_t garbage = std::min<std::size_t>(handle.workspace_bytes, 64);
        if (garbage > 0) { std::memset(handle.workspace, 0xff, garbage); }
        for (std::size_t column = 0; column < n; ++column) {
            const std::size_t begin = part == Part::lower ? column : 0;
            const std::size_t end = part == Part::upper ? column + 1 : m;
            for (std::size_t row = begin; row < end; ++row) {
                T sum = 0;
                for (std::size_t i = 0; i < k; ++i) { sum += a(row, i) * b(i, column); }
                T& to = c[column * ldc + row];
                to = beta == 0 ? alpha * sum : alpha * sum + beta * to;
            }
        }
    }
};

bool on_device(const void* pointer) {
    cudaPointerAttributes attributes{};
    return cudaPointerGetAttributes(&attributes, pointer) == cudaSuccess &&
           (attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged);
}

template <class T>
cublasStatus_t gemm(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n, int k,
                    const T* alpha, const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc,
                    Part part = Part::all, bool in_bf16 = false) {
    if (handle == nullptr) { return CUBLAS_STATUS_NOT_INITIALIZED; }
    const bool sizes = m >= 0 && n >= 0 && k >= 0 && lda >= std::max(1, a_op == CUBLAS_OP_N ? m : k) &&
                       ldb >= std::max(1, b_op == CUBLAS_OP_N ? k : n) && ldc >= std::max(1, m);
    if (!sizes || alpha == nullptr || beta == nullptr) { return CUBLAS_STATUS_INVALID_VALUE; }
    if (m == 0 || n == 0) { return CUBLAS_STATUS_SUCCESS; }
    // A GPU would fail later, with an illegal address.
    if (!on_device(c) || (k > 0 && (!on_device(a) || !on_device(b)))) { return CUBLAS_STATUS_INVALID_VALUE; }
    const auto size = [](int extent) { return static_cast<std::size_t>(extent); };
    Gemm<T> product{size(m), size(n),   size(k), *alpha, *beta, factor(a_op, a, lda), factor(b_op, b, ldb),
                    c,       size(ldc), *handle, part};
    product.a.in_bf16 = in_bf16;
    product.b.in_bf16 = in_bf16;
    const cudaError_t error = cuda_call("cublasGemm", Needs::device, [&](State& s, Lock& lock, ThreadState& thread) {
        cudaError_t wrong = cudaSuccess;
        CUstream_st* const stream = find_stream(s, handle->stream, wrong);
        if (stream == nullptr) { return wrong; }
        if (stream->device != thread.device) { return cudaErrorInvalidResourceHandle; }
        if (stream->capture && handle->workspace == nullptr) { return cudaErrorStreamCaptureUnsupported; }
        return submit(s, lock, *stream,
                      [product](State& state, CUstream_st& in) { push(state, in, std::make_unique<Work>(product)); });
    });
    if (error == cudaErrorStreamCaptureUnsupported) { return CUBLAS_STATUS_NOT_SUPPORTED; }
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

template <class T>
cublasStatus_t syrk(cublasHandle_t handle, cublasFillMode_t fill, cublasOperation_t op, int n, int k, const T* alpha,
                    const T* a, int lda, const T* beta, T* c, int ldc) {
    if (fill != CUBLAS_FILL_MODE_LOWER && fill != CUBLAS_FILL_MODE_UPPER) { return CUBLAS_STATUS_INVALID_VALUE; }
    return gemm(handle, op, op == CUBLAS_OP_N ? CUBLAS_OP_T : CUBLAS_OP_N, n, n, k, alpha, a, lda, a, lda, beta, c,
                ldc, fill == CUBLAS_FILL_MODE_LOWER ? Part::lower : Part::upper);
}

}  // namespace
}  // namespace standin

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
    if (handle == nullptr) { return CUBLAS_STATUS_INVALID_VALUE; }
    *handle = std::make_unique<cublasContext>().release();
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    if (handle == nullptr) { return CUBLAS_STATUS_NOT_INITIALIZED; }
    const std::unique_ptr<cublasContext> ends_here(handle);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    if (handle == nullptr) { return CUBLAS_STATUS_NOT_INITIALIZED; }
    *handle = {stream, nullptr, 0};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream) {
    if (handle == nullptr || stream == nullptr) { return CUBLAS_STATUS_NOT_INITIALIZED; }
    *stream = handle->stream;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, std::size_t bytes) {
    if (handle == nullptr) { return CUBLAS_STATUS_NOT_INITIALIZED; }
    constexpr std::uintptr_t alignment = 256;
    if (reinterpret_cast<std::uintptr_t>(workspace) % alignment != 0) { return CUBLAS_STATUS_INVALID_VALUE; }
    if (workspace == nullptr ? bytes != 0 : !standin::on_device(workspace)) { return CUBLAS_STATUS_INVALID_VALUE; }
    handle->workspace = workspace;
    handle->workspace_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusString(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS:
            return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_NOT_INITIALIZED:
            return "CUBLAS_STATUS_NOT_INITIALIZED";
        case CUBLAS_STATUS_INVALID_VALUE:
            return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_EXECUTION_FAILED:
            return "CUBLAS_STATUS_EXECUTION_FAILED";
        case CUBLAS_STATUS_NOT_SUPPORTED:
            return "CUBLAS_STATUS_NOT_SUPPORTED";
        default:
            return "a cuBLAS error";
    }
}
cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n,
                              int k, const float* alpha, const float* a, int lda, const float* b, int ldb,
                              const float* beta, float* c, int ldc) {
    return standin::gemm(handle, a_op, b_op, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
cublasStatus_t cublasDgemm_v2(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n,
                              int k, const double* alpha, const double* a, int lda, const double* b, int ldb,
                              const double* beta, double* c, int ldc) {
    return standin::gemm(handle, a_op, b_op, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n,
                            int k, const void* alpha, const void* a, cudaDataType_t a_type, int lda, const void* b,
                            cudaDataType_t b_type, int ldb, const void* beta, void* c, cudaDataType_t c_type, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t /*algorithm*/) {
    if (a_type != CUDA_R_32F || b_type != CUDA_R_32F || c_type != CUDA_R_32F) { return CUBLAS_STATUS_NOT_SUPPORTED; }
    const auto in = [](const void* memory) { return static_cast<const float*>(memory); };
    return standin::gemm(handle, a_op, b_op, m, n, k, in(alpha), in(a), lda, in(b), ldb, in(beta),
                         static_cast<float*>(c), ldc, standin::Part::all, compute == CUBLAS_COMPUTE_32F_FAST_16BF);
}
cublasStatus_t cublasSsyrk_v2(cublasHandle_t handle, cublasFillMode_t fill, cublasOperation_t op, int n, int k,
                              const float* alpha, const float* a, int lda, const float* beta, float* c, int ldc) {
    return standin::syrk(handle, fill, op, n, k, alpha, a, lda, beta, c, ldc);
}
cublasStatus_t cublasDsyrk_v2(cublasHandle_t handle, cublasFillMode_t fill, cublasOperation_t op, int n, int k,
                              const double* alpha, const double* a, int lda, const double* beta, double* c, int ldc) {
    return standin::syrk(handle, fill, op, n, k, alpha, a, lda, beta, c, ldc);
}
