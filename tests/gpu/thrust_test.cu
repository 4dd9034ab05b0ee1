// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/host_vector.h>
#include <thrust/reduce.h>
#include <thrust/sequence.h>

#include <shardkit/backend/thrust/device_iterators.cuh>
#include <shardkit/backend/thrust/to_span.cuh>
#include <shardkit/param/tensor_view.hpp>

#include "gpu_machine.hpp"

namespace sk = shardkit;

TEST_CASE("to_span: a device_vector's memory, whole or in part") {
    thrust::device_vector<float> vector(10);
    const thrust::device_vector<float>& constant = vector;
    static_assert(std::is_same_v<decltype(sk::gpu::to_span(vector)), std::span<float>>);
    static_assert(std::is_same_v<decltype(sk::gpu::to_span(constant)), std::span<const float>>);
    CHECK(sk::gpu::to_span(vector).data() == thrust::raw_pointer_cast(vector.data()));
    CHECK(sk::gpu::to_span(vector).size() == 10);
    CHECK(sk::gpu::to_span(constant).data() == thrust::raw_pointer_cast(vector.data()));
    const auto part = sk::gpu::to_span(vector.begin() + 3, vector.begin() + 7);
    CHECK(part.data() == thrust::raw_pointer_cast(vector.data()) + 3);
    CHECK(part.size() == 4);
    CHECK(sk::gpu::to_span(vector.data(), vector.data() + 2).size() == 2);
    thrust::device_vector<float> none;
    CHECK(sk::gpu::to_span(none).empty());
}

TEST_CASE("a device_vector filled by our kernels") {
    sk::test::GpuMachine gpu;
    thrust::device_vector<float> vector(1001);
    cudaDeviceSynchronize();  // Thrust's own constructor ran in the default stream
    sk::gpu::Kernels::fill(gpu.stream(), sk::gpu::to_span(vector), 2.5F);
    gpu.stream().synchronize();
    const thrust::host_vector<float> host(vector);
    CHECK(std::vector<float>(host.begin(), host.end()) == std::vector<float>(1001, 2.5F));
}

TEST_CASE("device_begin and device_end: our memory in Thrust's algorithms") {
    sk::test::GpuMachine gpu;
    const auto values = sk::test::array(gpu.machine(), std::vector<float>(100), 1);
    const auto on_stream = thrust::cuda::par.on(gpu.stream().native());
    thrust::sequence(on_stream, sk::gpu::device_begin(values.span()), sk::gpu::device_end(values.span()));
    const std::vector<float> got = values.values();
    CHECK(got.front() == 0);
    CHECK(got.back() == 99);
    CHECK(thrust::reduce(on_stream, sk::gpu::device_begin(values.view()), sk::gpu::device_end(values.view()), 0.0F,
                         thrust::plus<float>()) == 4950);

    const std::uint64_t generation = 0;
    const sk::TensorShape shape{2, {10, 10}};
    const sk::TensorView<float> tensor(values.data(), shape, generation);
    CHECK(sk::gpu::device_end(tensor) - sk::gpu::device_begin(tensor) == 100);
    CHECK(thrust::reduce(on_stream, sk::gpu::device_begin(tensor), sk::gpu::device_end(tensor), 0.0F,
                         thrust::plus<float>()) == 4950);
}
