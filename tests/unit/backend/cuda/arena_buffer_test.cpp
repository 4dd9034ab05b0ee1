// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <doctest/doctest.h>

#include <shardkit/backend/cuda/arena.hpp>
#include <shardkit/backend/cuda/arena_buffer.hpp>
#include <shardkit/backend/cuda/memory_kind.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timeline.hpp>

#include "unit/backend/cuda/clean_machine.hpp"
#include "unit/backend/cuda/fake_chunks.hpp"
#include "unit/thrown_message.hpp"

namespace arena_buffer_test {

using shardkit::gpu::Error;
using shardkit::gpu::Stream;
using shardkit::gpu::Timeline;
using shardkit::gpu::detail::Arena;
using shardkit::gpu::detail::ArenaBuffer;
using shardkit::gpu::detail::current_device;
using shardkit::gpu::detail::DeviceChunks;
using shardkit::gpu::detail::DeviceGuard;
using shardkit::gpu::detail::require_device_memory;

static_assert(!std::is_copy_constructible_v<ArenaBuffer<float>>);
static_assert(std::is_nothrow_move_constructible_v<ArenaBuffer<float>>);

namespace {

struct Fixture {
    CleanMachine machine;
    Stream stream;
    Timeline timeline{stream.ref()};
    DeviceChunks source{0};
    Arena arena{source, 1U << 16U};
};

}  // namespace

TEST_CASE("ArenaBuffer: zeroed when the constructor returns, memory that was used before too") {
    Fixture f;
    std::uint32_t* before = nullptr;
    {
        const ArenaBuffer<std::uint32_t> buffer(f.arena, 1000, f.timeline.ref());
        before = buffer.data();
        CHECK(std::count(buffer.span().begin(), buffer.span().end(), 0U) == 1000);
        std::fill_n(buffer.data(), buffer.size(), 9U);
    }
    const ArenaBuffer<std::uint32_t> buffer(f.arena, 900, f.timeline.ref());
    CHECK(buffer.data() == before);
    CHECK(buffer.size() == 900);
    CHECK(std::count(buffer.span().begin(), buffer.span().end(), 0U) == 900);
    CHECK(standin::calls("cudaMalloc") == 2);  // the timeline's scratch and one chunk
}

TEST_CASE("ArenaBuffer: of a device that is not the selected one, which stays selected") {
    const CleanMachine machine;
    std::optional<Stream> stream;
    {
        const DeviceGuard guard(2);
        stream.emplace();
    }
    Timeline timeline(stream->ref(), {.device = 2});
    DeviceChunks source(2);
    Arena arena(source, 4096);
    const ArenaBuffer<float> buffer(arena, 100, timeline.ref());
    CHECK_NOTHROW(require_device_memory(buffer.data(), 400, 2, "buffer"));
    CHECK(std::count(buffer.span().begin(), buffer.span().end(), 0.0F) == 100);
    CHECK(current_device() == 0);
}

TEST_CASE("ArenaBuffer: moves leave an empty buffer, and the memory goes back once") {
    Fixture f;
    {
        ArenaBuffer<float> first(f.arena, 100, f.timeline.ref());
        float* const data = first.data();
        ArenaBuffer<float> moved(std::move(first));
        CHECK(first.data() == nullptr);  // NOLINT(bugprone-use-after-move)
        CHECK(first.size() == 0);
        CHECK(first.span().empty());
        ArenaBuffer<float> assigned;
        assigned = std::move(moved);
        CHECK(assigned.data() == data);
        CHECK(assigned.size() == 100);
        assigned = ArenaBuffer<float>(f.arena, 200, f.timeline.ref());
        CHECK(assigned.size() == 200);
        CHECK(f.arena.used_bytes() == 1024);
    }
    CHECK(f.arena.used_bytes() == 0);
}

TEST_CASE("ArenaBuffer: no elements, no memory and no call") {
    Fixture f;
    const std::size_t zeroings = standin::calls("cudaMemsetAsync");
    const ArenaBuffer<double> buffer(f.arena, 0, f.timeline.ref());
    CHECK(buffer.data() == nullptr);
    CHECK(buffer.span().empty());
    CHECK(ArenaBuffer<double>().span().empty());
    CHECK(f.arena.chunks().empty());
    CHECK(standin::calls("cudaMemsetAsync") == zeroings);
}

TEST_CASE("ArenaBuffer: sizes beyond the address space are refused, not wrapped around") {
    Fixture f;
    const std::size_t size = std::numeric_limits<std::size_t>::max() / sizeof(double) + 2;
    const std::string message =
        thrown_message<std::length_error>([&] { const ArenaBuffer<double> buffer(f.arena, size, f.timeline.ref()); });
    CHECK(message.find("ArenaBuffer: " + std::to_string(size) + " elements of 8 bytes exceed the address space") ==
          0);
    CHECK(message.find("arena_buffer_test.cpp:") != std::string::npos);
    CHECK(f.arena.chunks().empty());
}

TEST_CASE("ArenaBuffer: a failure of the source or of the zeroing reaches the user and leaves the arena as before") {
    Fixture f;
    standin::fail_next("cudaMalloc", cudaErrorMemoryAllocation);
    const std::string memory =
        thrown_message<std::bad_alloc>([&] { const ArenaBuffer<float> buffer(f.arena, 8, f.timeline.ref()); });
    CHECK(memory.find("cuda: cudaMalloc of ") == 0);
    CHECK(memory.find("arena_buffer_test.cpp:") != std::string::npos);
    CHECK(memory.find("cudaErrorMemoryAllocation") != std::string::npos);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    standin::fail_next("cudaMemsetAsync", cudaErrorInvalidValue);
    CHECK(thrown_message<Error>([&] {
              const ArenaBuffer<float> buffer(f.arena, 8, f.timeline.ref());
          }).find("cuda: cudaMemsetAsync at ") == 0);
    standin::fail_next("cudaStreamSynchronize", cudaErrorLaunchFailure);
    CHECK(thrown_message<Error>([&] {
              const ArenaBuffer<float> buffer(f.arena, 8, f.timeline.ref());
          }).find("cuda: cudaStreamSynchronize at ") == 0);
    CHECK(f.arena.used_bytes() == 0);

    FakeChunks none(0);
    Arena empty(none, 512);
    CHECK_THROWS_AS(ArenaBuffer<float>(empty, 8, f.timeline.ref()), std::bad_alloc);
}

}  // namespace arena_buffer_test
