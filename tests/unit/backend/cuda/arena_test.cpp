// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/cuda/arena.hpp>
#include <shardkit/backend/cuda/memory_kind.hpp>

#include "unit/backend/cuda/clean_machine.hpp"
#include "unit/backend/cuda/fake_chunks.hpp"
#include "unit/thrown_message.hpp"

namespace arena_test {

namespace {

using shardkit::SourceLocation;
using shardkit::gpu::detail::Arena;
using shardkit::gpu::detail::DeviceChunks;
using shardkit::gpu::detail::require_device_memory;
constexpr std::size_t unit = Arena::granularity;

/// Chunk and offset of a piece.
std::pair<std::size_t, std::size_t> place(const Arena& arena, const void* memory) {
    const auto chunks = arena.chunks();
    for (std::size_t c = 0; c < chunks.size(); ++c) {
        const auto address = reinterpret_cast<std::uintptr_t>(memory);
        const auto begin = reinterpret_cast<std::uintptr_t>(chunks[c].data);
        if (address >= begin && address < begin + chunks[c].bytes) { return {c, address - begin}; }
    }
    return {chunks.size(), 0};
}

/// A random, repeatable history of requests and frees; returns where every piece was.
std::vector<std::pair<std::size_t, std::size_t>> history(Arena& arena, std::uint32_t seed) {
    struct Live {
        std::byte* data;
        std::size_t bytes;
        std::byte mark;
    };
    std::mt19937 random(seed);
    std::vector<Live> live;
    std::vector<std::pair<std::size_t, std::size_t>> places;
    for (int i = 0; i < 600; ++i) {
        if (live.empty() || random() % 5 < 3) {
            const std::size_t bytes = 1 + random() % (6 * unit);
            const Live piece{static_cast<std::byte*>(arena.allocate(bytes)), bytes, static_cast<std::byte>(i)};
            std::fill_n(piece.data, bytes, piece.mark);
            places.push_back(place(arena, piece.data));
            live.push_back(piece);
        } else {
            const std::size_t which = random() % live.size();
            const Live piece = live[which];
            live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
            // Nobody else was given this memory meanwhile.
            CHECK(std::all_of(piece.data, piece.data + piece.bytes, [&](std::byte b) { return b == piece.mark; }));
            arena.free(piece.data);
        }
    }
    for (const Live& piece : live) { arena.free(piece.data); }
    return places;
}

}  // namespace

TEST_CASE("Arena: pieces are multiples of the granularity, one behind the other, from one chunk") {
    FakeChunks source;
    Arena arena(source, 8 * unit);
    CHECK(source.held() == 0);
    CHECK(place(arena, arena.allocate(1)) == std::pair<std::size_t, std::size_t>{0, 0});
    CHECK(place(arena, arena.allocate(unit)) == std::pair<std::size_t, std::size_t>{0, unit});
    CHECK(place(arena, arena.allocate(unit + 1)) == std::pair<std::size_t, std::size_t>{0, 2 * unit});
    CHECK(place(arena, arena.allocate(1)) == std::pair<std::size_t, std::size_t>{0, 4 * unit});
    CHECK(arena.used_bytes() == 5 * unit);
    CHECK(arena.chunks().size() == 1);
    CHECK(arena.chunks()[0].bytes == 8 * unit);
    CHECK(arena.allocate(0) == nullptr);
    arena.free(nullptr);
    CHECK(arena.used_bytes() == 5 * unit);
}

TEST_CASE("Arena: the first free piece that is large enough is taken, lowest offset first") {
    FakeChunks source;
    Arena arena(source, 16 * unit);
    std::vector<void*> pieces;
    for (const std::size_t units : {1U, 3U, 1U, 2U, 1U}) { pieces.push_back(arena.allocate(units * unit)); }
    arena.free(pieces[1]);  // 3 units at 1
    arena.free(pieces[3]);  // 2 units at 5
    CHECK(place(arena, arena.allocate(2 * unit)).second == 1 * unit);
    CHECK(place(arena, arena.allocate(2 * unit)).second == 5 * unit);
    CHECK(place(arena, arena.allocate(1 * unit)).second == 3 * unit);
    CHECK(place(arena, arena.allocate(1 * unit)).second == 8 * unit);
}

TEST_CASE("Arena: a freed piece merges with its free neighbours on both sides, in every order of freeing") {
    for (const std::vector<std::size_t>& order :
         std::vector<std::vector<std::size_t>>{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}) {
        FakeChunks source;
        Arena arena(source, 3 * unit);
        const std::vector<void*> pieces{arena.allocate(unit), arena.allocate(unit), arena.allocate(unit)};
        for (const std::size_t i : order) { arena.free(pieces[i]); }
        CHECK(arena.used_bytes() == 0);
        CHECK(arena.allocate(3 * unit) == pieces[0]);
        CHECK(source.held() == 1);
    }
}

TEST_CASE("Arena: pieces of neighbouring chunks do not merge") {
    FakeChunks source;
    Arena arena(source, 2 * unit);
    void* const first = arena.allocate(2 * unit);
    void* const second = arena.allocate(2 * unit);
    arena.free(first);
    arena.free(second);
    CHECK(place(arena, arena.allocate(4 * unit)) == std::pair<std::size_t, std::size_t>{2, 0});
}

TEST_CASE("Arena: a request beyond the chunk size gets a chunk of its own size, and what is left is used") {
    FakeChunks source;
    Arena arena(source, 4 * unit);
    CHECK(place(arena, arena.allocate(9 * unit + 1)) == std::pair<std::size_t, std::size_t>{0, 0});
    CHECK(arena.chunks()[0].bytes == 10 * unit);
    CHECK(place(arena, arena.allocate(unit)) == std::pair<std::size_t, std::size_t>{1, 0});
    CHECK(arena.chunks()[1].bytes == 4 * unit);
    CHECK(place(arena, arena.allocate(unit)) == std::pair<std::size_t, std::size_t>{1, unit});
}

TEST_CASE("Arena: the chunk size is rounded up to the granularity") {
    FakeChunks source;
    Arena arena(source, 1);
    arena.allocate(1);
    CHECK(arena.chunks()[0].bytes == unit);
}

TEST_CASE("Arena: two ranks that ask the same get the same chunks and offsets, and no piece twice") {
    for (std::uint32_t seed = 1; seed <= 5; ++seed) {
        FakeChunks one;
        FakeChunks other;
        Arena first(one, 16 * unit);
        Arena second(other, 16 * unit);
        CHECK(history(first, seed) == history(second, seed));
        CHECK(first.used_bytes() == 0);
        // All merged: every chunk can be handed out whole again, without a new one.
        const std::size_t held = one.held();
        for (std::size_t i = 0; i < held; ++i) {
            CHECK(place(first, first.allocate(16 * unit)) == std::pair<std::size_t, std::size_t>{i, 0});
        }
        CHECK(one.held() == held);
    }
}

TEST_CASE("Arena: when the source has nothing left its error is passed on, and the arena is as before") {
    FakeChunks source(6 * unit);
    Arena arena(source, 4 * unit);
    void* const first = arena.allocate(3 * unit);
    CHECK_THROWS_AS(arena.allocate(2 * unit), std::bad_alloc);
    CHECK(arena.chunks().size() == 1);
    CHECK(arena.used_bytes() == 3 * unit);
    CHECK(place(arena, arena.allocate(unit)).second == 3 * unit);
    arena.free(first);
    CHECK(arena.allocate(2 * unit) == first);
}

TEST_CASE("Arena: sizes that exceed the address space are refused by name, before the source is asked") {
    FakeChunks source;
    Arena arena(source, unit);
    for (const std::size_t bytes : {std::numeric_limits<std::size_t>::max(),
                                    static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) - 1}) {
        const std::string message = thrown_message<std::length_error>([&] { arena.allocate(bytes); });
        CHECK(message.find("Arena: " + std::to_string(bytes) + " bytes exceed the address space") == 0);
        CHECK(message.find("arena_test.cpp") != std::string::npos);
    }
    CHECK_THROWS_AS(Arena(source, std::numeric_limits<std::size_t>::max()), std::length_error);
    CHECK(thrown_message<std::invalid_argument>([&] {
              const Arena none(source, 0);
          }).find("Arena: chunk_bytes is 0, expected at least 1") == 0);
    CHECK(source.taken_bytes() == 0);
}

TEST_CASE("Arena: its end gives every chunk back") {
    FakeChunks source;
    {
        Arena arena(source, unit);
        for (int i = 0; i < 3; ++i) { arena.allocate(unit); }
        CHECK(source.held() == 3);
    }
    CHECK(source.held() == 0);
}

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

}  // namespace arena_test
