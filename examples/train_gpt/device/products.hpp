// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>

#include <cublas_v2.h>

#include <shardkit/core/bf16.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/rank/context.hpp>

#include "../model/matrix.hpp"

namespace train_gpt {

/// The model's products by cuBLAS, on the compute stream of one rank.
template <class Engine>
class DeviceProducts {
  public:
    /// Of its own, so that products can be captured into a graph. NVIDIA recommends so much on Hopper.
    static constexpr std::size_t workspace_bytes = std::size_t{32} << 20U;

    explicit DeviceProducts(const shardkit::Context<Engine>& context, std::size_t bytes = workspace_bytes)
        : workspace_(context.template local_buffer<std::uint8_t>(bytes)) {
        check(cublasCreate(&handle_), "cublasCreate");
        try {
            check(cublasSetStream(handle_, context.compute_stream().native()), "cublasSetStream");
            check(cublasSetWorkspace(handle_, workspace_.data(), bytes), "cublasSetWorkspace");
        } catch (...) {
            static_cast<void>(cublasDestroy(handle_));
            throw;
        }
    }
    DeviceProducts(const DeviceProducts&) = delete;
    DeviceProducts& operator=(const DeviceProducts&) = delete;
    ~DeviceProducts() { static_cast<void>(cublasDestroy(handle_)); }

    /// Of the workspace.
    std::size_t bytes() const noexcept { return workspace_.size(); }

    /// As HostPlace::multiply, in the order of the stream; sums of bf16 are made in fp32, and rounded once where the
    /// result is bf16.
    template <class S, class R, class A = shardkit::Arithmetic<S>>
    void multiply(Matrix<const S> a, Matrix<const S> b, Matrix<R> result, Into into, A scale, Repeats repeats) const {
        static_assert(std::same_as<R, S> || std::same_as<R, A>);
        constexpr cudaDataType_t type = type_of<S>();
        constexpr cublasComputeType_t sums = std::same_as<S, double> ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
        const A beta = into == Into::add ? A{1} : A{0};
        // Row-major matrices are the transposes of those that cuBLAS sees.
        check(cublasGemmStridedBatchedEx(
                  handle_, op(b.order), op(a.order), extent(result.columns), extent(result.rows), extent(a.columns),
                  &scale, b.data, type, extent(b.stride), stride(repeats.right), a.data, type, extent(a.stride),
                  stride(repeats.left), &beta, result.data, type_of<R>(), extent(result.stride),
                  stride(repeats.result), extent(repeats.count), sums, CUBLAS_GEMM_DEFAULT),
              "cublasGemmStridedBatchedEx");
    }

  private:
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

    typename Engine::template Buffer<std::uint8_t> workspace_;
    cublasHandle_t handle_ = nullptr;
};

}  // namespace train_gpt
