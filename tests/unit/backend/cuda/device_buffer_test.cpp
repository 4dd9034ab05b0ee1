// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <doctest/doctest.h>

#include <shardkit/backend/cuda/device_buffer.hpp>
#include <shardkit/backend/cuda/pinned_buffer.hpp>
#include <shardkit/backend/cuda/stream.hpp>

#include "unit/backend/cuda/clean_machine.hpp"
#include "unit/thrown_message.hpp"

namespace device_buffer_test {

using shardkit::gpu::Error;
using shardkit::gpu::Stream;
using shardkit::gpu::detail::DeviceBuffer;
using shardkit::gpu::detail::PinnedBuffer;

static_assert(!std::is_copy_constructible_v<DeviceBuffer<float>> &&
              !std::is_copy_constructible_v<PinnedBuffer<float>>);

namespace {

template <class Buffer>
void check_moves(Buffer first, Buffer second) {
    float* const data = first.data();
    Buffer moved(std::move(first));
    CHECK(first.data() == nullptr);  // NOLINT(bugprone-use-after-move)
    CHECK(first.size() == 0);
    CHECK(moved.data() == data);
    second = std::move(moved);
    CHECK(second.data() == data);
    CHECK(second.size() == 5);
    CHECK(second.span().data() == data);
    CHECK(second.span().size() == 5);
}

}  // namespace

TEST_CASE("DeviceBuffer: device memory, zeroed in the order of its stream") {
    const CleanMachine machine;
    const Stream stream;
    const DeviceBuffer<std::uint32_t> buffer(1000, stream.ref());
    cudaPointerAttributes attributes{};
    CHECK(cudaPointerGetAttributes(&attributes, buffer.data()) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeDevice);
    // The stand-in's device memory is the host's. Lazily the zeroes come only when the stream is waited for.
    std::fill_n(buffer.data(), buffer.size(), 9U);
    stream.ref().synchronize();
    CHECK(std::count(buffer.span().begin(), buffer.span().end(), 0U) == 1000);
}

TEST_CASE("PinnedBuffer: page-locked host memory, zeroed") {
    const CleanMachine machine;
    const PinnedBuffer<double> buffer(1000);
    cudaPointerAttributes attributes{};
    CHECK(cudaPointerGetAttributes(&attributes, buffer.data()) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeHost);
    CHECK(std::count(buffer.span().begin(), buffer.span().end(), 0.0) == 1000);
}

TEST_CASE("DeviceBuffer and PinnedBuffer: moves leave an empty buffer and free once") {
    const CleanMachine machine;
    const Stream stream;
    check_moves(DeviceBuffer<float>(5, stream.ref()), DeviceBuffer<float>(7, stream.ref()));
    CHECK(standin::calls("cudaFree") == 2);
    check_moves(PinnedBuffer<float>(5), PinnedBuffer<float>(7));
    CHECK(standin::calls("cudaFreeHost") == 2);
}

TEST_CASE("DeviceBuffer and PinnedBuffer: no elements, no memory and no call") {
    const CleanMachine machine;
    const Stream stream;
    const DeviceBuffer<float> device(0, stream.ref());
    const PinnedBuffer<float> pinned(0);
    CHECK(device.data() == nullptr);
    CHECK(device.span().empty());
    CHECK(pinned.span().empty());
    CHECK(DeviceBuffer<float>().size() == 0);
    CHECK(PinnedBuffer<float>().size() == 0);
    CHECK(standin::calls("cudaMalloc") == 0);
    CHECK(standin::calls("cudaMallocHost") == 0);
    CHECK(standin::calls("cudaMemsetAsync") == 0);
}

TEST_CASE("DeviceBuffer and PinnedBuffer: sizes beyond the address space are refused, not wrapped around") {
    const CleanMachine machine;
    const Stream stream;
    for (const std::size_t size :
         {std::numeric_limits<std::size_t>::max(), std::numeric_limits<std::size_t>::max() / sizeof(double) + 1}) {
        const std::string what = std::to_string(size) + " elements of 8 bytes exceed the address space (";
        CHECK(thrown_message<std::length_error>([&] {
                  const DeviceBuffer<double> buffer(size, stream.ref());
              }).find("DeviceBuffer: " + what) == 0);
        CHECK(thrown_message<std::length_error>([&] {
                  const PinnedBuffer<double> buffer(size);
              }).find("PinnedBuffer: " + what) == 0);
    }
}

TEST_CASE("DeviceBuffer and PinnedBuffer: errors name the call, and nothing is leaked when the zeroing fails") {
    const CleanMachine machine;
    const Stream stream;
    standin::fail_next("cudaMalloc", cudaErrorMemoryAllocation);
    CHECK(thrown_message<Error>([&] {
              const DeviceBuffer<float> buffer(4, stream.ref());
          }).find("cuda: cudaMalloc at ") == 0);
    standin::fail_next("cudaMallocHost", cudaErrorMemoryAllocation);
    CHECK(thrown_message<std::bad_alloc>([&] {
              const PinnedBuffer<float> buffer(4);
          }).find("cuda: cudaMallocHost of 16 bytes at ") == 0);
    standin::fail_next("cudaMallocHost", cudaErrorInvalidValue);
    CHECK(thrown_message<Error>([&] { const PinnedBuffer<float> buffer(4); }).find("cuda: cudaMallocHost at ") == 0);
    standin::fail_next("cudaMemsetAsync", cudaErrorInvalidValue);
    CHECK(thrown_message<Error>([&] {
              const DeviceBuffer<float> buffer(4, stream.ref());
          }).find("cuda: cudaMemsetAsync at ") == 0);
    CHECK(standin::live().device_allocations == 0);
}

}  // namespace device_buffer_test
