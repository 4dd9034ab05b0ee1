// SPDX-License-Identifier: Apache-2.0
#include <new>
#include <string>

#include <doctest/doctest.h>

#include <shardkit/backend/cuda/device_chunks.hpp>
#include <shardkit/backend/cuda/memory_kind.hpp>

#include "unit/backend/cuda/clean_machine.hpp"
#include "unit/thrown_message.hpp"

using shardkit::SourceLocation;
using shardkit::gpu::DeviceChunks;
using shardkit::gpu::require_device_memory;

TEST_CASE("DeviceChunks: chunks lie on its device, whichever is selected") {
    const CleanMachine machine;
    DeviceChunks chunks(3);
    void* const chunk = chunks.allocate(4096, SourceLocation::current());
    CHECK_NOTHROW(require_device_memory(chunk, 4096, 3, "chunk"));
    CHECK(standin::device_bytes(3) == 4096);
    chunks.free(chunk);
    CHECK(standin::device_bytes(3) == 0);
}

TEST_CASE("DeviceChunks: no memory left is an error with the user's line") {
    const CleanMachine machine;
    standin::set_device_memory(4096);
    DeviceChunks chunks(0);
    const std::string message = thrown_message<std::bad_alloc>([&] {
        chunks.allocate(8192, SourceLocation{"train.cpp", 12});
    });
    CHECK(message.find("cuda: cudaMalloc of 8192 bytes at train.cpp:12: cudaErrorMemoryAllocation: ") == 0);
}
