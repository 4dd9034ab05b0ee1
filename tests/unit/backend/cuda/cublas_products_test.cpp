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
#include <shardkit/matrix/products.hpp>

#include "cuda_fixture.hpp"
#include "unit/matrix/products_cases.hpp"

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

    const gpu::Stream other;
    REQUIRE(cublasSetStream(handle, other.ref().native()) == CUBLAS_STATUS_SUCCESS);
    const sk::rules::MatrixProduct<float> none{1, 1, 1, 1, nullptr, nullptr, 0, nullptr};
    CHECK_THROWS_WITH_AS(products.multiply(timeline.ref(), none),
                         doctest::Contains("the handle's stream is another than the rank's compute stream"),
                         sk::UsageError);
    CHECK(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS);
}

}  // namespace cublas_products_test
