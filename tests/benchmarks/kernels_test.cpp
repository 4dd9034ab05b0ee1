// SPDX-License-Identifier: Apache-2.0
// The data check of the kernels: it passes what the library computes, and counts what is planted.
#include <cstddef>
#include <cstdint>
#include <span>

#include <doctest/doctest.h>
#include <shardkit/backend/self/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "check_kernel.hpp"

namespace {

using namespace benchmarks::kernels;
using Engine = shardkit::self::Engine;

}  // namespace

TEST_CASE("every kernel: right data passes, one spoiled element is one wrong value, no call is wrong") {
    shardkit::self::run(shardkit::DeviceMesh<1>{}, [](auto& rank) {
        shardkit::Context<Engine>& context = rank;
        for (std::size_t kernel = 0; kernel < kernel_names.size(); ++kernel) {
            check_kernel(context, static_cast<KernelKind>(kernel));
        }
    });
}

TEST_CASE("tensors that are packed have mixed sizes, begin at aligned places and fill the flat buffer") {
    const auto bounds = tensor_bounds(1'000'000, 300, sizeof(float));
    REQUIRE(bounds.size() == 301);
    CHECK(bounds.front() == 0);
    CHECK(bounds.back() == 1'000'000);
    for (std::size_t t = 0; t < 300; ++t) {
        CHECK(bounds[t] * sizeof(float) % 128 == 0);
        CHECK(bounds[t] < bounds[t + 1]);
    }
    CHECK(bounds[4] - bounds[3] > 10 * (bounds[2] - bounds[1]));
    CHECK(tensor_bounds(5, 3, 2) == std::vector<std::size_t>{0, 0, 0, 5});
}

TEST_CASE("bytes per element are those of the buffers that a kernel touches") {
    // fp32 parameter, two moments: read and written; a gradient of 4 bytes, or of 2 and a copy of 2.
    CHECK(bytes_per_element(KernelKind::adamw, DataType::fp32) == 28);
    CHECK(bytes_per_element(KernelKind::adamw, DataType::bf16) == 28);
    CHECK(bytes_per_element(KernelKind::sgd, DataType::fp32) == 20);
    CHECK(bytes_per_element(KernelKind::sgd, DataType::bf16) == 20);
    CHECK(bytes_per_element(KernelKind::norm, DataType::fp32) == 4);
    CHECK(bytes_per_element(KernelKind::norm, DataType::bf16) == 2);
    CHECK(bytes_per_element(KernelKind::cast, DataType::fp32) == 6);
    CHECK(bytes_per_element(KernelKind::cast, DataType::bf16) == 6);
    CHECK(bytes_per_element(KernelKind::accumulate, DataType::fp32) == 12);
    CHECK(bytes_per_element(KernelKind::accumulate, DataType::bf16) == 10);
    CHECK(bytes_per_element(KernelKind::pack, DataType::fp32) == 8);
    CHECK(bytes_per_element(KernelKind::unpack, DataType::bf16) == 4);
}

TEST_CASE("values are exact in bf16 and never 0") {
    for (std::size_t i = 0; i < 1000; ++i) {
        const float v = value(i % 4, i);
        CHECK(static_cast<float>(static_cast<shardkit::bf16>(v)) == v);
        CHECK(v != 0);
        CHECK(std::abs(v) <= 1);
    }
}
