// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/optim/matrix_products.hpp>

namespace shardkit::gpu {

/// What cuBLAS multiplies of matrices in fp32. In bf16 is the arithmetic of torch.optim.Muon's products, but for sums
/// and results, which are fp32 here.
enum class Factors : std::uint8_t {
    as_stored,  ///< in the handle's math mode
    in_bf16     ///< rounded to bf16 for tensor cores, whose sums are fp32; matrices of fp64 stay as they are
};

/// The products of cuBLAS, through the trainer's handle, in the math mode that the trainer has set: TF32 on tensor
/// cores, say. The handle's stream is the rank's compute stream, and its pointer mode the host's. In a captured graph
/// the handle needs a workspace of its own (cublasSetWorkspace). The program links cuBLAS. Not owning.
///     cublasSetStream(handle, rank.compute_stream().native());
///     gpu::CublasProducts products{handle, gpu::Factors::in_bf16};
/// Ranks get the same bits on GPUs of one kind.
class CublasProducts {
  public:
    explicit CublasProducts(cublasHandle_t handle, Factors factors = Factors::as_stored,
                            SourceLocation where = SourceLocation::current()) noexcept
        : handle_(handle), factors_(factors), made_(where) {}

    /// @throws UsageError when the handle's stream is another; std::runtime_error with cuBLAS's text
    template <std::floating_point A>
    void multiply(const shardkit::Stream& stream, const rules::MatrixProduct<A>& p) const {
        require_stream(TimelineRef(stream));
        // Row-major matrices are the transposes of those that cuBLAS sees.
        const auto call = [&](auto gemm) {
            return gemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, extent(p.columns), extent(p.rows), extent(p.inner),
                        &p.alpha, p.right, extent(p.columns), p.left, extent(p.inner), &p.beta, p.out,
                        extent(p.columns));
        };
        if constexpr (std::is_same_v<A, float>) {
            if (factors_ == Factors::in_bf16) {
                multiply_in_bf16(CUBLAS_OP_N, p, p.columns, p.columns);
                return;
            }
            check(call(cublasSgemm), "cublasSgemm");
        } else {
            check(call(cublasDgemm), "cublasDgemm");
        }
    }
    /// @throws as multiply
    template <std::floating_point A>
    void gram(const shardkit::Stream& stream, const rules::GramProduct<A>& p) const {
        require_stream(TimelineRef(stream));
        const auto call = [&](auto syrk) {
            return syrk(handle_, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_T, extent(p.rows), extent(p.columns), &p.alpha,
                        p.matrix, extent(p.columns), &p.beta, p.out, extent(p.rows));
        };
        if constexpr (std::is_same_v<A, float>) {
            if (factors_ == Factors::in_bf16) {
                gram_in_bf16(p);
                return;
            }
            check(call(cublasSsyrk), "cublasSsyrk");
        } else {
            check(call(cublasDsyrk), "cublasDsyrk");
        }
    }

  private:
    /// cuBLAS's product in bf16 is one of two matrices. Rows in blocks, each up to its last diagonal element: of many
    /// blocks that is half the work.
    void gram_in_bf16(const rules::GramProduct<float>& p) const {
        constexpr std::size_t block = 2048;
        for (std::size_t row = 0; row < p.rows; row += block) {
            const std::size_t rows = std::min(block, p.rows - row);
            multiply_in_bf16(CUBLAS_OP_T,
                             {rows, p.columns, row + rows, p.alpha, p.matrix + row * p.columns, p.matrix, p.beta,
                              p.out + row * p.rows},
                             p.columns, p.rows);
        }
    }
    /// `right` lies with so many elements from row to row, as it is or turned, and so does `out`.
    void multiply_in_bf16(cublasOperation_t right, const rules::MatrixProduct<float>& p, std::size_t right_stride,
                          std::size_t out_stride) const {
        check(cublasGemmEx(handle_, right, CUBLAS_OP_N, extent(p.columns), extent(p.rows), extent(p.inner), &p.alpha,
                           p.right, CUDA_R_32F, extent(right_stride), p.left, CUDA_R_32F, extent(p.inner), &p.beta,
                           p.out, CUDA_R_32F, extent(out_stride), CUBLAS_COMPUTE_32F_FAST_16BF, CUBLAS_GEMM_DEFAULT),
              "cublasGemmEx");
    }
    static int extent(std::size_t extent) {
        if (extent > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
            throw std::length_error("CublasProducts: an extent is larger than cuBLAS can count");
        }
        return static_cast<int>(extent);
    }
    static void check(cublasStatus_t status, std::string_view call) {
        if (status == CUBLAS_STATUS_SUCCESS) { return; }
        throw std::runtime_error(
            shardkit::detail::concat("CublasProducts: ", call, ": ", cublasGetStatusString(status)));
    }
    void require_stream(const TimelineRef& stream) const {
        cudaStream_t own = nullptr;
        check(cublasGetStream(handle_, &own), "cublasGetStream");
        if (own != stream.native()) {
            throw_usage_error(
                made_,
                "CublasProducts: the handle's stream is another than the rank's compute stream, expected "
                "cublasSetStream(handle, rank.compute_stream().native())");
        }
    }

    cublasHandle_t handle_;
    Factors factors_;
    SourceLocation made_;
};

}  // namespace shardkit::gpu
