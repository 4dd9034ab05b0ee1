// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>

#include <cublasLt.h>
#include <cublas_v2.h>

#include <shardkit/core/bf16.hpp>
#include <shardkit/core/element.hpp>

#include "../model/matrix.hpp"

namespace train_gpt {

/// The model's products by cuBLAS and cuBLASLt, in the order of a stream.
class DeviceProducts {
  public:
    /// What NVIDIA recommends on Hopper.
    static constexpr std::size_t workspace_bytes = std::size_t{32} << 20U;

    /// cuBLAS would take memory of its own for every graph that products are captured into.
    DeviceProducts(cudaStream_t stream, std::span<std::uint8_t> workspace) : stream_(stream), workspace_(workspace) {
        check(cublasCreate(&handle_), "cublasCreate");
        try {
            check(cublasSetStream(handle_, stream_), "cublasSetStream");
            check(cublasSetWorkspace(handle_, workspace_.data(), workspace_.size()), "cublasSetWorkspace");
        } catch (...) {
            static_cast<void>(cublasDestroy(handle_));
            throw;
        }
    }
    DeviceProducts(const DeviceProducts&) = delete;
    DeviceProducts& operator=(const DeviceProducts&) = delete;
    ~DeviceProducts() { static_cast<void>(cublasDestroy(handle_)); }

    /// As HostPlace::multiply, in the order of the stream; sums of bf16 are made in fp32, and rounded once where the
    /// result is bf16.
    template <class S, class R, class A = shardkit::Arithmetic<S>>
    void multiply(Matrix<const S> a, Matrix<const S> b, Matrix<R> result, Into into, A scale,
                  std::size_t count) const {
        static_assert(std::same_as<R, S> || std::same_as<R, A>);
        constexpr cudaDataType_t type = type_of<S>();
        constexpr cublasComputeType_t sums = std::same_as<S, double> ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
        const A beta = into == Into::add ? A{1} : A{0};
        // Row-major matrices are the transposes of those that cuBLAS sees.
        check(cublasGemmStridedBatchedEx(handle_, op(b.order), op(a.order), extent(result.columns),
                                         extent(result.rows), extent(a.columns), &scale, b.data, type,
                                         extent(b.stride), stride(b.next), a.data, type, extent(a.stride),
                                         stride(a.next), &beta, result.data, type_of<R>(), extent(result.stride),
                                         stride(result.next), extent(count), sums, CUBLAS_GEMM_DEFAULT),
              "cublasGemmStridedBatchedEx");
    }
    /// y = a b + bias, and gelu(y) where `gelu` is not null; as stored as a result is, or false where cuBLASLt has no
    /// such product. GELU is of y before it is rounded.
    template <class S>
    bool multiply_biased(Matrix<const S> a, Matrix<const S> b, const S* bias, Matrix<S> y, S* gelu) const {
        if (gelu == nullptr) { return multiply_with<S>(CUBLASLT_EPILOGUE_BIAS, a, b, bias, nullptr, y); }
        return multiply_with<S>(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, a, b, bias, y.data,
                                {gelu, y.rows, y.columns, y.stride, y.next});
    }
    /// result = a b times the slope of GELU at x, likewise.
    template <class S>
    bool multiply_by_gelu_slope(Matrix<const S> a, Matrix<const S> b, const S* x, Matrix<S> result) const {
        // What an epilogue only reads is not const in cuBLASLt.
        return multiply_with<S>(CUBLASLT_EPILOGUE_DGELU, a, b, nullptr, const_cast<S*>(x), result);
    }

  private:
    /// One product with an epilogue, whose matrix of GELU's inputs has the extents of the result.
    template <class S>
    bool multiply_with(cublasLtEpilogue_t epilogue, Matrix<const S> a, Matrix<const S> b, const S* bias, S* inputs,
                       Matrix<S> result) const {
        constexpr cudaDataType_t type = type_of<S>();
        const auto lt = reinterpret_cast<cublasLtHandle_t>(handle_);  // which every handle of cuBLAS is too
        const auto leading = static_cast<std::int64_t>(result.stride);
        if (std::same_as<S, double> || leading % 8 != 0) { return false; }
        cublasLtMatmulDescOpaque_t how{};
        check(cublasLtMatmulDescInit(&how, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescInit");
        const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
            check(cublasLtMatmulDescSetAttribute(&how, attribute, &value, sizeof value),
                  "cublasLtMatmulDescSetAttribute");
        };
        // As in multiply, the transposes of row-major matrices.
        set(CUBLASLT_MATMUL_DESC_TRANSA, static_cast<std::int32_t>(op(b.order)));
        set(CUBLASLT_MATMUL_DESC_TRANSB, static_cast<std::int32_t>(op(a.order)));
        set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(epilogue));
        if (bias != nullptr) { set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias); }
        if (inputs != nullptr) {
            set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, inputs);
            set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, leading);
        }
        const auto layout = [](const auto& matrix) {
            const bool turned = matrix.order == Order::transposed;
            cublasLtMatrixLayoutOpaque_t of{};
            check(cublasLtMatrixLayoutInit(&of, type, turned ? matrix.rows : matrix.columns,
                                           turned ? matrix.columns : matrix.rows,
                                           static_cast<std::int64_t>(matrix.stride)),
                  "cublasLtMatrixLayoutInit");
            return of;
        };
        cublasLtMatrixLayoutOpaque_t of_left = layout(b), of_right = layout(a), of_result = layout(result);
        cublasLtMatmulPreferenceOpaque_t within{};
        check(cublasLtMatmulPreferenceInit(&within), "cublasLtMatmulPreferenceInit");
        const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
            check(cublasLtMatmulPreferenceSetAttribute(&within, attribute, &value, sizeof value),
                  "cublasLtMatmulPreferenceSetAttribute");
        };
        prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_.size()});
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(b.data));
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(a.data));
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(result.data));
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(result.data));
        cublasLtMatmulHeuristicResult_t chosen{};
        int found = 0;
        const cublasStatus_t has = cublasLtMatmulAlgoGetHeuristic(lt, &how, &of_left, &of_right, &of_result,
                                                                  &of_result, &within, 1, &chosen, &found);
        if (has == CUBLAS_STATUS_NOT_SUPPORTED || (has == CUBLAS_STATUS_SUCCESS && found == 0)) { return false; }
        check(has, "cublasLtMatmulAlgoGetHeuristic");
        const float one = 1;
        const float zero = 0;
        check(cublasLtMatmul(lt, &how, &one, b.data, &of_left, a.data, &of_right, &zero, result.data, &of_result,
                             result.data, &of_result, &chosen.algo, workspace_.data(), workspace_.size(), stream_),
              "cublasLtMatmul");
        return true;
    }
    /// Of a pointer, in bytes, at most what cuBLASLt asks about.
    static std::uint32_t alignment(const void* pointer) {
        const auto address = reinterpret_cast<std::uintptr_t>(pointer);
        return static_cast<std::uint32_t>(std::min<std::uintptr_t>(address & (~address + 1), 256));
    }
    template <class X>
    static constexpr cudaDataType_t type_of() {
        constexpr bool wide = std::same_as<X, double>;
        static_assert(wide || std::same_as<X, float> || std::same_as<X, shardkit::bf16>);
        return wide ? CUDA_R_64F : std::same_as<X, float> ? CUDA_R_32F : CUDA_R_16BF;
    }
    static cublasOperation_t op(Order order) { return order == Order::transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }
    static long long stride(std::size_t elements) { return static_cast<long long>(elements); }
    static int extent(std::size_t extent) {
        if (extent > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
            throw std::length_error("a matrix has an extent of " + std::to_string(extent) +
                                    ", expected one that cuBLAS can count");
        }
        return static_cast<int>(extent);
    }
    static void check(cublasStatus_t status, const char* call) {
        if (status == CUBLAS_STATUS_SUCCESS) { return; }
        throw std::runtime_error(std::string(call) + ": " + cublasGetStatusString(status));
    }

    cudaStream_t stream_;
    std::span<std::uint8_t> workspace_;  // of both, as one product comes after the other
    cublasHandle_t handle_ = nullptr;
};

}  // namespace train_gpt
