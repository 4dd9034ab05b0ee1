// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <doctest/doctest.h>

#include <shardkit/backend/cuda/arena.hpp>
#include <shardkit/backend/cuda/memory_kind.hpp>
#include <shardkit/backend/cuda/owned_bytes.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timeline.hpp>

#include "unit/backend/cuda/clean_machine.hpp"
#include "unit/backend/cuda/fake_chunks.hpp"
#include "unit/thrown_message.hpp"

namespace owned_bytes_test {

using shardkit::gpu::Error;
using shardkit::gpu::Stream;
using shardkit::gpu::Timeline;
using shardkit::gpu::detail::Arena;
using shardkit::gpu::detail::arena_bytes;
using shardkit::gpu::detail::current_device;
using shardkit::gpu::detail::device_bytes;
using shardkit::gpu::detail::DeviceChunks;
using shardkit::gpu::detail::DeviceGuard;
using shardkit::gpu::detail::OwnedBytes;
using shardkit::gpu::detail::pinned_bytes;
using shardkit::gpu::detail::require_device_memory;

static_assert(!std::is_copy_constructible_v<OwnedBytes> && std::is_nothrow_move_constructible_v<OwnedBytes>);

namespace {

struct Fixture {
    CleanMachine machine;
    Stream stream;
    Timeline timeline{stream.ref()};
    DeviceChunks source{0};
    Arena arena{source, 1U << 16U};
};

std::ptrdiff_t zeros(const OwnedBytes& bytes) {
    return std::count(bytes.span().begin(), bytes.span().end(), std::byte{0});
}
cudaMemoryType type_of(const OwnedBytes& bytes) {
    cudaPointerAttributes attributes{};
    CHECK(cudaPointerGetAttributes(&attributes, bytes.data()) == cudaSuccess);
    return attributes.type;
}

}  // namespace

TEST_CASE("OwnedBytes: a device's, zeroed in the order of their stream") {
    const CleanMachine machine;
    const Stream stream;
    const OwnedBytes bytes = device_bytes(1000, stream.ref());
    CHECK(type_of(bytes) == cudaMemoryTypeDevice);
    // The stand-in's device memory is the host's. Lazily the zeroes come only when the stream is waited for.
    std::fill_n(bytes.data(), bytes.size(), std::byte{9});
    stream.ref().synchronize();
    CHECK(zeros(bytes) == 1000);
}

TEST_CASE("OwnedBytes: page-locked ones of the host, zeroed") {
    const CleanMachine machine;
    const OwnedBytes bytes = pinned_bytes(1000);
    CHECK(type_of(bytes) == cudaMemoryTypeHost);
    CHECK(zeros(bytes) == 1000);
}

TEST_CASE("OwnedBytes: an arena's, zeroed when they are returned, memory that was used before too") {
    Fixture f;
    std::byte* before = nullptr;
    {
        const OwnedBytes bytes = arena_bytes(f.arena, 4000, f.timeline.ref());
        before = bytes.data();
        CHECK(zeros(bytes) == 4000);
        std::fill_n(bytes.data(), bytes.size(), std::byte{9});
    }
    const OwnedBytes bytes = arena_bytes(f.arena, 3600, f.timeline.ref());
    CHECK(bytes.data() == before);
    CHECK(bytes.size() == 3600);
    CHECK(zeros(bytes) == 3600);
    CHECK(standin::calls("cudaMalloc") == 2);  // the timeline's scratch and one chunk
}

TEST_CASE("OwnedBytes: an arena's of a device that is not the selected one, which stays selected") {
    const CleanMachine machine;
    std::optional<Stream> stream;
    {
        const DeviceGuard guard(2);
        stream.emplace();
    }
    Timeline timeline(stream->ref(), {.device = 2});
    DeviceChunks source(2);
    Arena arena(source, 4096);
    const OwnedBytes bytes = arena_bytes(arena, 400, timeline.ref());
    CHECK_NOTHROW(require_device_memory(bytes.data(), 400, 2, "buffer"));
    CHECK(zeros(bytes) == 400);
    CHECK(current_device() == 0);
}

TEST_CASE("OwnedBytes: moves leave none behind, and what is owned is freed once") {
    Fixture f;
    {
        OwnedBytes first = arena_bytes(f.arena, 100, f.timeline.ref());
        std::byte* const data = first.data();
        OwnedBytes moved(std::move(first));
        CHECK(first.data() == nullptr);  // NOLINT(bugprone-use-after-move)
        CHECK(first.size() == 0);
        CHECK(first.span().empty());
        OwnedBytes assigned = pinned_bytes(7);
        assigned = std::move(moved);
        CHECK(standin::calls("cudaFreeHost") == 1);
        CHECK(assigned.data() == data);
        CHECK(assigned.size() == 100);
        CHECK(f.arena.used_bytes() == 512);
        assigned = arena_bytes(f.arena, 600, f.timeline.ref());
        CHECK(assigned.size() == 600);
        CHECK(f.arena.used_bytes() == 1024);
        assigned = device_bytes(5, f.stream.ref());
        CHECK(f.arena.used_bytes() == 0);
    }
    CHECK(standin::calls("cudaFree") == 1);
}

TEST_CASE("OwnedBytes: none take no memory and no call") {
    Fixture f;
    const std::size_t mallocs = standin::calls("cudaMalloc");
    const std::size_t zeroings = standin::calls("cudaMemsetAsync");
    CHECK(device_bytes(0, f.stream.ref()).data() == nullptr);
    CHECK(pinned_bytes(0).span().empty());
    CHECK(arena_bytes(f.arena, 0, f.timeline.ref()).span().empty());
    CHECK(OwnedBytes().size() == 0);
    CHECK(f.arena.chunks().empty());
    CHECK(standin::calls("cudaMalloc") == mallocs);
    CHECK(standin::calls("cudaMallocHost") == 0);
    CHECK(standin::calls("cudaMemsetAsync") == zeroings);
}

TEST_CASE("OwnedBytes: errors name the call and the user's line, and nothing is leaked when the zeroing fails") {
    Fixture f;
    const auto live = standin::live().device_allocations;
    standin::fail_next("cudaMalloc", cudaErrorMemoryAllocation);
    CHECK(thrown_message<Error>([&] { device_bytes(16, f.stream.ref()); }).find("cuda: cudaMalloc at ") == 0);
    standin::fail_next("cudaMemsetAsync", cudaErrorInvalidValue);
    CHECK(thrown_message<Error>([&] { device_bytes(16, f.stream.ref()); }).find("cuda: cudaMemsetAsync at ") == 0);
    CHECK(standin::live().device_allocations == live);
    standin::fail_next("cudaMallocHost", cudaErrorMemoryAllocation);
    CHECK(thrown_message<std::bad_alloc>([&] { pinned_bytes(16); }).find("cuda: cudaMallocHost of 16 bytes at ") ==
          0);
    standin::fail_next("cudaMallocHost", cudaErrorInvalidValue);
    CHECK(thrown_message<Error>([&] { pinned_bytes(16); }).find("cuda: cudaMallocHost at ") == 0);
    standin::fail_next("cudaMalloc", cudaErrorMemoryAllocation);
    const std::string memory = thrown_message<std::bad_alloc>([&] { arena_bytes(f.arena, 32, f.timeline.ref()); });
    CHECK(memory.find("cuda: cudaMalloc of ") == 0);
    CHECK(memory.find("owned_bytes_test.cpp:") != std::string::npos);
    CHECK(memory.find("cudaErrorMemoryAllocation") != std::string::npos);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    standin::fail_next("cudaMemsetAsync", cudaErrorInvalidValue);
    CHECK(thrown_message<Error>([&] {
              arena_bytes(f.arena, 32, f.timeline.ref());
          }).find("cuda: cudaMemsetAsync at ") == 0);
    standin::fail_next("cudaStreamSynchronize", cudaErrorLaunchFailure);
    CHECK(thrown_message<Error>([&] {
              arena_bytes(f.arena, 32, f.timeline.ref());
          }).find("cuda: cudaStreamSynchronize at ") == 0);
    CHECK(f.arena.used_bytes() == 0);

    FakeChunks none(0);
    Arena empty(none, 512);
    CHECK_THROWS_AS(arena_bytes(empty, 32, f.timeline.ref()), std::bad_alloc);
}

}  // namespace owned_bytes_test
