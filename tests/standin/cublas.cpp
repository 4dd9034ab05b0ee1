// SPDX-License-Identifier: Apache-2.0
#include <cublas_v2.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include <shardkit/core/bf16.hpp>

#include "state.hpp"

/// The stream that a handle's work goes to, the memory that the user lent it, and where alpha and beta lie.
struct cublasContext {
    cudaStream_t stream = nullptr;
    void* workspace = nullptr;
    std::size_t workspace_bytes = 0;
    cublasPointerMode_t mode = CUBLAS_POINTER_MODE_HOST;
};

namespace standin {
namespace {

/// Which elements of the result are read and written.
enum class Part : unsigned char { all, lower, upper };
/// Whether factors are rounded to bf16 first.
enum class Round : unsigned char { no, to_bf16 };

/// A matrix in columns, as cuBLAS has them, or its transpose.
template <class T>
struct Factor {
    const T* data;
    std::size_t row_step, column_step;
    long long stride;  // from one of a batch to the next

    T operator()(long long number, std::size_t row, std::size_t column) const {
        return data[number * stride + static_cast<long long>(row * row_step + column * column_step)];
    }
};

template <class T>
Factor<T> factor(cublasOperation_t op, const void* data, int leading, long long stride) {
    const auto step = static_cast<std::size_t>(leading);
    const auto* const first = static_cast<const T*>(data);
    return op == CUBLAS_OP_N ? Factor<T>{first, 1, step, stride} : Factor<T>{first, step, 1, stride};
}

/// alpha or beta: what it was at the call, or where it is read when the product is made.
template <class S>
struct Scalar {
    S value;
    const S* on_device;

    S operator()() const { return on_device == nullptr ? value : *on_device; }
};

/// A batch of c = alpha * a * b + beta * c, with sums in S; what c held is not read when beta is 0, as in cuBLAS.
template <class In, class Out, class S>
struct Gemm {
    std::size_t m, n, k;
    Scalar<S> alpha, beta;
    Factor<In> a, b;
    Out* c;
    std::size_t ldc;
    long long stride, count;
    cublasContext handle;
    Part part;
    Round round;

    void operator()() const {
        const std::size_t garbage = std::min<std::size_t>(handle.workspace_bytes, 64);
        if (garbage > 0) { std::memset(handle.workspace, 0xff, garbage); }
        const S by = alpha();
        const S old = beta();
        for (long long number = 0; number < count; ++number) {
            for (std::size_t column = 0; column < n; ++column) {
                const std::size_t begin = part == Part::lower ? column : 0;
                const std::size_t end = part == Part::upper ? column + 1 : m;
                for (std::size_t row = begin; row < end; ++row) {
                    S sum = 0;
                    for (std::size_t i = 0; i < k; ++i) {
                        sum += factor(a(number, row, i)) * factor(b(number, i, column));
                    }
                    Out& to = c[number * stride + static_cast<long long>(column * ldc + row)];
                    to = static_cast<Out>(old == 0 ? by * sum : by * sum + old * static_cast<S>(to));
                }
            }
        }
    }

  private:
    S factor(In element) const {
        const auto value = static_cast<S>(element);
        return round == Round::no ? value
                                  : static_cast<S>(static_cast<float>(shardkit::bf16(static_cast<float>(value))));
    }
};

bool on_device(const void* pointer) {
    cudaPointerAttributes attributes{};
    return cudaPointerGetAttributes(&attributes, pointer) == cudaSuccess &&
           (attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged);
}
/// Whether a batch of matrices of `rows` and `columns`, as stored, lies in memory of a device.
bool on_device(const void* data, std::size_t element, int rows, int columns, int leading, long long stride,
               long long count) {
    const auto* const first = static_cast<const char*>(data);
    const long long last = (columns - 1LL) * leading + rows - 1;
    const auto at = [&](long long number, long long offset) {
        return on_device(first + (number * stride + offset) * static_cast<long long>(element));
    };
    return rows == 0 || columns == 0 || (at(0, 0) && at(0, last) && at(count - 1, 0) && at(count - 1, last));
}

/// What all products are given.
struct Product {
    cublasOperation_t a_op, b_op;
    int m, n, k;
    const void* alpha;
    const void* a;
    int lda;
    const void* b;
    int ldb;
    const void* beta;
    void* c;
    int ldc;
    long long a_stride = 0, b_stride = 0, c_stride = 0;
    int count = 1;
    Part part = Part::all;
    Round round = Round::no;
};

/// Results lie one behind the other, or beside each other in the same columns.
bool overlap(const Product& p) {
    const long long whole = (p.n - 1LL) * p.ldc + p.m;
    return p.count > 1 && p.c_stride < whole && (p.c_stride < p.m || (p.count - 1LL) * p.c_stride + p.m > p.ldc);
}

template <class In, class Out, class S>
cublasStatus_t multiply(cublasHandle_t handle, const Product& p) {
    if (handle == nullptr) { return CUBLAS_STATUS_NOT_INITIALIZED; }
    const int a_rows = p.a_op == CUBLAS_OP_N ? p.m : p.k;
    const int b_rows = p.b_op == CUBLAS_OP_N ? p.k : p.n;
    const bool sizes = p.m >= 0 && p.n >= 0 && p.k >= 0 && p.count >= 0 && p.lda >= std::max(1, a_rows) &&
                       p.ldb >= std::max(1, b_rows) && p.ldc >= std::max(1, p.m);
    if (!sizes || p.alpha == nullptr || p.beta == nullptr) { return CUBLAS_STATUS_INVALID_VALUE; }
    if (p.m == 0 || p.n == 0 || p.count == 0) { return CUBLAS_STATUS_SUCCESS; }
    // A GPU would fail later, with an illegal address.
    const bool scalars_on_device = handle->mode == CUBLAS_POINTER_MODE_DEVICE;
    if (on_device(p.alpha) != scalars_on_device || on_device(p.beta) != scalars_on_device) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    const int a_columns = p.a_op == CUBLAS_OP_N ? p.k : p.m;
    const int b_columns = p.b_op == CUBLAS_OP_N ? p.n : p.k;
    if (overlap(p) || !on_device(p.c, sizeof(Out), p.m, p.n, p.ldc, p.c_stride, p.count) ||
        !on_device(p.a, sizeof(In), a_rows, a_columns, p.lda, p.a_stride, p.count) ||
        !on_device(p.b, sizeof(In), b_rows, b_columns, p.ldb, p.b_stride, p.count)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    const auto size = [](int extent) { return static_cast<std::size_t>(extent); };
    const auto scalar = [&](const void* given) {
        const auto* const at = static_cast<const S*>(given);
        return scalars_on_device ? Scalar<S>{0, at} : Scalar<S>{*at, nullptr};
    };
    const Gemm<In, Out, S> product{size(p.m),
                                   size(p.n),
                                   size(p.k),
                                   scalar(p.alpha),
                                   scalar(p.beta),
                                   factor<In>(p.a_op, p.a, p.lda, p.a_stride),
                                   factor<In>(p.b_op, p.b, p.ldb, p.b_stride),
                                   static_cast<Out*>(p.c),
                                   size(p.ldc),
                                   p.c_stride,
                                   p.count,
                                   *handle,
                                   p.part,
                                   p.round};
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
    Product p{op, op == CUBLAS_OP_N ? CUBLAS_OP_T : CUBLAS_OP_N, n, n, k, alpha, a, lda, a, lda, beta, c, ldc};
    p.part = fill == CUBLAS_FILL_MODE_LOWER ? Part::lower : Part::upper;
    return multiply<T, T, T>(handle, p);
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
    handle->stream = stream;
    handle->workspace = nullptr;
    handle->workspace_bytes = 0;
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
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
    if (handle == nullptr) { return CUBLAS_STATUS_NOT_INITIALIZED; }
    if (mode != CUBLAS_POINTER_MODE_HOST && mode != CUBLAS_POINTER_MODE_DEVICE) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    handle->mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
    if (handle == nullptr) { return CUBLAS_STATUS_NOT_INITIALIZED; }
    if (mode == nullptr) { return CUBLAS_STATUS_INVALID_VALUE; }
    *mode = handle->mode;
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
    return standin::multiply<float, float, float>(handle, {a_op, b_op, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc});
}
cublasStatus_t cublasDgemm_v2(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n,
                              int k, const double* alpha, const double* a, int lda, const double* b, int ldb,
                              const double* beta, double* c, int ldc) {
    return standin::multiply<double, double, double>(handle,
                                                     {a_op, b_op, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc});
}
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n,
                            int k, const void* alpha, const void* a, cudaDataType_t a_type, int lda, const void* b,
                            cudaDataType_t b_type, int ldb, const void* beta, void* c, cudaDataType_t c_type, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
    return cublasGemmStridedBatchedEx(handle, a_op, b_op, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta,
                                      c, c_type, ldc, 0, 1, compute, algorithm);
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op,
                                          int m, int n, int k, const void* alpha, const void* a,
                                          cudaDataType_t a_type, int lda, long long a_stride, const void* b,
                                          cudaDataType_t b_type, int ldb, long long b_stride, const void* beta,
                                          void* c, cudaDataType_t c_type, int ldc, long long c_stride, int count,
                                          cublasComputeType_t compute, cublasGemmAlgo_t /*algorithm*/) {
    using shardkit::bf16;
    const bool rounds = compute == CUBLAS_COMPUTE_32F_FAST_16BF;
    const standin::Product p{a_op,
                             b_op,
                             m,
                             n,
                             k,
                             alpha,
                             a,
                             lda,
                             b,
                             ldb,
                             beta,
                             c,
                             ldc,
                             a_stride,
                             b_stride,
                             c_stride,
                             count,
                             standin::Part::all,
                             rounds ? standin::Round::to_bf16 : standin::Round::no};
    const auto are = [&](cudaDataType_t factors, cudaDataType_t result) {
        return a_type == factors && b_type == factors && c_type == result;
    };
    if (compute == CUBLAS_COMPUTE_64F && are(CUDA_R_64F, CUDA_R_64F)) {
        return standin::multiply<double, double, double>(handle, p);
    }
    if (!rounds && compute != CUBLAS_COMPUTE_32F) { return CUBLAS_STATUS_NOT_SUPPORTED; }
    if (are(CUDA_R_32F, CUDA_R_32F)) { return standin::multiply<float, float, float>(handle, p); }
    if (are(CUDA_R_16BF, CUDA_R_16BF) && !rounds) { return standin::multiply<bf16, bf16, float>(handle, p); }
    if (are(CUDA_R_16BF, CUDA_R_32F) && !rounds) { return standin::multiply<bf16, float, float>(handle, p); }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasSsyrk_v2(cublasHandle_t handle, cublasFillMode_t fill, cublasOperation_t op, int n, int k,
                              const float* alpha, const float* a, int lda, const float* beta, float* c, int ldc) {
    return standin::syrk(handle, fill, op, n, k, alpha, a, lda, beta, c, ldc);
}
cublasStatus_t cublasDsyrk_v2(cublasHandle_t handle, cublasFillMode_t fill, cublasOperation_t op, int n, int k,
                              const double* alpha, const double* a, int lda, const double* beta, double* c, int ldc) {
    return standin::syrk(handle, fill, op, n, k, alpha, a, lda, beta, c, ldc);
}
