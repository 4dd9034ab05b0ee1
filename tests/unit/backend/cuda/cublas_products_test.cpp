// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <deque>
#include <vector>

#include <cublas_v2.h>
#include <doctest/doctest.h>

#include <shardkit/backend/cuda/cublas_products.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/optim/matrix_products.hpp>

#include "cuda_fixture.hpp"
#include "unit/muon/products_cases.hpp"

namespace cublas_products_test {

namespace sk = shardkit;
namespace gpu = shardkit::gpu;

static_assert(sk::rules::MatrixProducts<gpu::CublasProducts, gpu::TimelineRef, double>);

template <class A>
void check_on_device(const gpu::CublasProducts& products, const gpu::TimelineRef& stream) {
    std::deque<DeviceArray<A>> kept;
    products_cases::check_products<A>(
        products, stream,
        [&](const std::vector<A>& given) {
            DeviceArray<A>& array = kept.emplace_back(given.size());
            for (std::size_t i = 0; i < given.size(); ++i) { array[i] = given[i]; }
            return array.data;
        },
        [&](const A* from, std::size_t n) {
            stream.synchronize();
            return std::vector<A>(from, from + n);
        });
}

/// 1 + 2^-8 is a tie between 1 and 1 + 2^-7 in bf16; 1 + 2^-12 is a sum that bf16 has not.
void check_rounding(const gpu::CublasProducts& as_stored, const gpu::CublasProducts& in_bf16,
                    const gpu::TimelineRef& stream) {
    const DeviceArray<float> left(2);
    const DeviceArray<float> right(2);
    const DeviceArray<float> out(1);
    left[0] = 1 + 0x1p-8F;
    right[0] = 1;
    left[1] = 0x1p-6F;
    right[1] = 0x1p-6F;
    const auto multiplied = [&](const gpu::CublasProducts& products) {
        products.multiply(stream, sk::rules::MatrixProduct<float>{1, 2, 1, 1, left.data, right.data, 0, out.data});
        stream.synchronize();
        return out[0];
    };
    CHECK(multiplied(as_stored) == 1 + 0x1p-8F + 0x1p-12F);
    CHECK(multiplied(in_bf16) == 1 + 0x1p-12F);
}

/// More rows than one of cuBLAS's products in bf16 takes.
void check_large_gram(const gpu::CublasProducts& products, const gpu::TimelineRef& stream) {
    constexpr std::size_t rows = 2051;
    const DeviceArray<float> matrix(rows);
    const DeviceArray<float> out(rows * rows);
    for (std::size_t i = 0; i < rows; ++i) { matrix[i] = static_cast<float>(i % 13) - 6; }
    products.gram(stream, sk::rules::GramProduct<float>{rows, 1, 1, matrix.data, 0, out.data});
    stream.synchronize();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t j = 0; j <= i; ++j) { wrong += out[i * rows + j] == matrix[i] * matrix[j] ? 0U : 1U; }
    }
    CHECK(wrong == 0);
}

TEST_CASE("cuBLAS multiplies row-major matrices, and writes half of a symmetric result") {
    const Fresh fresh;
    const gpu::Stream stream;
    gpu::Timeline timeline(stream.ref());
    cublasHandle_t handle = nullptr;
    REQUIRE(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasSetStream(handle, timeline.ref().native()) == CUBLAS_STATUS_SUCCESS);
    const gpu::CublasProducts products{handle};
    check_on_device<float>(products, timeline.ref());
    check_on_device<double>(products, timeline.ref());
    const gpu::CublasProducts in_bf16{handle, gpu::Factors::in_bf16};
    check_on_device<float>(in_bf16, timeline.ref());
    check_on_device<double>(in_bf16, timeline.ref());
    check_large_gram(in_bf16, timeline.ref());
    check_rounding(products, in_bf16, timeline.ref());

    const gpu::Stream other;
    REQUIRE(cublasSetStream(handle, other.ref().native()) == CUBLAS_STATUS_SUCCESS);
    const sk::rules::MatrixProduct<float> none{1, 1, 1, 1, nullptr, nullptr, 0, nullptr};
    CHECK_THROWS_WITH_AS(products.multiply(timeline.ref(), none),
                         doctest::Contains("the handle's stream is another than the rank's compute stream"),
                         sk::UsageError);
    CHECK(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS);
}

}  // namespace cublas_products_test
