// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <stdexcept>
#include <string>

#include <doctest/doctest.h>

#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/memory_kind.hpp>
#include <shardkit/backend/cuda/stream.hpp>

#include "unit/backend/cuda/clean_machine.hpp"
#include "unit/backend/cuda/typed_bytes.hpp"
#include "unit/thrown_message.hpp"

namespace memory_kind_test {

using shardkit::gpu::Stream;
using shardkit::gpu::detail::DeviceGuard;
using shardkit::gpu::detail::require_device_memory;
using shardkit::gpu::detail::require_host_memory;

namespace {

std::string refused_by_device(const void* pointer, int device) {
    return thrown_message<std::invalid_argument>(
        [&] { require_device_memory(pointer, 4, device, "all_gather: shard"); });
}
std::string refused_by_host(const void* pointer) {
    return thrown_message<std::invalid_argument>([&] { require_host_memory(pointer, 4, "write: values"); });
}

}  // namespace

TEST_CASE("memory kinds: each side takes its own, and managed memory is of both") {
    const CleanMachine machine;
    const Stream stream;
    const TypedBytes<float> device = on_device<float>(3, stream.ref());
    const TypedBytes<float> locked = pinned<float>(3);
    const float plain = 0;
    void* managed = nullptr;
    REQUIRE(cudaMallocManaged(&managed, 16) == cudaSuccess);
    CHECK_NOTHROW(require_device_memory(device.data(), 12, 0, "shard"));
    CHECK_NOTHROW(require_device_memory(device.data() + 2, 4, 0, "shard"));
    CHECK_NOTHROW(require_device_memory(managed, 16, 0, "shard"));
    CHECK_NOTHROW(require_host_memory(&plain, 4, "values"));
    CHECK_NOTHROW(require_host_memory(locked.data(), 12, "values"));
    CHECK_NOTHROW(require_host_memory(managed, 16, "values"));
    CHECK(cudaFree(managed) == cudaSuccess);
}

TEST_CASE("memory kinds: host memory for a device is refused by name, pinned too") {
    const CleanMachine machine;
    const TypedBytes<float> locked = pinned<float>(3);
    const float plain = 0;
    const std::string message = refused_by_device(&plain, 2);
    CHECK(message.find("all_gather: shard: host memory given, device memory of GPU 2 expected (") == 0);
    CHECK(message.find("memory_kind_test.cpp:") != std::string::npos);
    CHECK(refused_by_device(locked.data(), 0).find("all_gather: shard: host memory given, device memory of GPU 0") ==
          0);
    CHECK(refused_by_device(nullptr, 0).find("all_gather: shard: a null pointer given, device memory of GPU 0") == 0);
}

TEST_CASE("memory kinds: memory of another device is refused with both devices") {
    const CleanMachine machine;
    const DeviceGuard guard(3);
    const Stream stream;
    const TypedBytes<float> other = on_device<float>(3, stream.ref());
    CHECK(refused_by_device(other.data(), 0)
              .find("all_gather: shard: device memory of GPU 3 given, device memory of GPU 0 expected") == 0);
    CHECK_NOTHROW(require_device_memory(other.data(), 12, 3, "shard"));
}

TEST_CASE("memory kinds: device memory for the host is refused by name") {
    const CleanMachine machine;
    const Stream stream;
    const TypedBytes<float> device = on_device<float>(3, stream.ref());
    CHECK(refused_by_host(device.data()).find("write: values: device memory of GPU 0 given, host memory expected") ==
          0);
    CHECK(refused_by_host(nullptr).find("write: values: a null pointer given, host memory expected") == 0);
}

TEST_CASE("memory kinds: zero bytes pass without a look at the pointer") {
    const CleanMachine machine;
    const float plain = 0;
    CHECK_NOTHROW(require_device_memory(&plain, 0, 0, "shard"));
    CHECK_NOTHROW(require_device_memory(nullptr, 0, 0, "shard"));
    CHECK_NOTHROW(require_host_memory(nullptr, 0, "values"));
    CHECK(standin::calls("cudaPointerGetAttributes") == 0);
}

}  // namespace memory_kind_test
