// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/optim/update.hpp>

namespace sk = shardkit;
namespace gpu = shardkit::gpu;

static_assert(gpu::lanes_for<float, float, float> == 4);
static_assert(gpu::lanes_for<double> == 2);
static_assert(gpu::lanes_for<sk::bf16> == 8);
static_assert(gpu::lanes_for<float, sk::bf16> == 8);
static_assert(gpu::lanes_for<double, sk::bf16> == 4);
static_assert(gpu::lanes_for<std::uint8_t> == 16);
static_assert(sizeof(gpu::AlignedPack<float, 4>) == 16 && alignof(gpu::AlignedPack<float, 4>) == 16);
static_assert(sizeof(gpu::AlignedPack<float, 8>) == 32 && alignof(gpu::AlignedPack<float, 8>) == 16);
static_assert(sizeof(gpu::AlignedPack<sk::bf16, 1>) == 2 && alignof(gpu::AlignedPack<sk::bf16, 1>) == 2);

namespace {

/// The positions of all vectors, in order: in packs, and one by one.
struct Visits {
    std::vector<std::uint64_t> all;
    std::size_t packs = 0;
};

struct Record {
    Visits* visits;
    template <std::size_t N>
    void at(std::uint64_t position) const {
        for (std::size_t i = 0; i < N; ++i) { visits->all.push_back(position + i); }
        visits->packs += N > 1 ? 1U : 0U;
    }
    template <std::size_t N>
    void at(std::uint64_t position, const sk::UpdateRange& run) const {
        CHECK(run.begin <= position);
        CHECK(position + N <= run.end);
        at<N>(position);
    }
};

template <std::size_t Lanes>
Visits visit(const gpu::Tiling<Lanes>& tiling) {
    Visits visits;
    for (std::uint64_t v = 0; v < tiling.vectors(); ++v) { gpu::for_each_pack(tiling, v, Record{&visits}); }
    return visits;
}

template <std::size_t Lanes>
Visits visit(const gpu::Tiling<Lanes>& tiling, const std::vector<sk::UpdateRange>& runs) {
    Visits visits;
    for (std::uint64_t v = 0; v < tiling.vectors(); ++v) {
        gpu::for_each_pack_in(tiling, v, runs.data(), runs.size(), Record{&visits});
    }
    return visits;
}

std::vector<std::uint64_t> numbers(std::uint64_t count) {
    std::vector<std::uint64_t> all;
    for (std::uint64_t i = 0; i < count; ++i) { all.push_back(i); }
    return all;
}

alignas(16) float floats[64];
alignas(16) sk::bf16 halves[64];

}  // namespace

TEST_CASE("the vectors are disjoint and cover [0, count)") {
    for (std::uint64_t count = 0; count < 40; ++count) {
        for (std::uint32_t shift = 0; shift < 8; ++shift) {
            for (const bool aligned : {false, true}) {
                CHECK(visit(gpu::Tiling<8>{count, shift, aligned}).all == numbers(count));
            }
        }
    }
}

TEST_CASE("spans that agree in alignment are read in packs behind a head, others one by one") {
    CHECK(visit(gpu::tile<4>(32, floats)).packs == 8);
    CHECK(visit(gpu::tile<4>(32, floats + 1)).packs == 7);
    CHECK(visit(gpu::tile<4>(32, floats + 1, floats + 5)).packs == 7);
    CHECK(visit(gpu::tile<4>(32, floats + 1, floats + 2)).packs == 0);
    CHECK(visit(gpu::tile<8>(32, floats, halves)).packs == 4);
    // An fp32 span repeats every 4 elements, a bf16 span every 8.
    CHECK(visit(gpu::tile<8>(32, floats + 1, halves + 5)).packs == 3);
    CHECK(visit(gpu::tile<8>(32, halves + 5, floats + 1)).packs == 3);
    CHECK(visit(gpu::tile<8>(32, floats + 2, halves + 5)).packs == 0);
    const float* const left_out = nullptr;
    CHECK(visit(gpu::tile<8>(32, left_out, halves + 5)).packs == 3);
}

TEST_CASE("whole packs lie at aligned addresses") {
    for (std::size_t offset = 0; offset < 8; ++offset) {
        const auto tiling = gpu::tile<8>(40, floats + offset, halves + offset);
        CHECK(tiling.aligned);
        for (std::uint64_t v = 0; v < tiling.vectors(); ++v) {
            const auto range = tiling.positions(v);
            if (!tiling.takes_packs(range)) { continue; }
            CHECK(reinterpret_cast<std::uintptr_t>(floats + offset + range.begin) % 16 == 0);
            CHECK(reinterpret_cast<std::uintptr_t>(halves + offset + range.begin) % 16 == 0);
        }
    }
}

TEST_CASE("positions beyond 2^32") {
    const std::uint64_t count = (std::uint64_t{1} << 40U) + 3;
    const gpu::Tiling<4> tiling{count, 1, true};
    CHECK(tiling.vectors() == (std::uint64_t{1} << 38U) + 1);
    CHECK(tiling.positions(tiling.vectors() - 1) == sk::IndexRange{count - 4, count});
    CHECK(tiling.positions(0) == sk::IndexRange{0, 3});
}

TEST_CASE("first_ending_after finds the range of a position, or the next one") {
    const std::vector<sk::UpdateRange> runs{{2, 5, 0}, {5, 5, 0}, {5, 9, 0}, {20, 21, 0}};
    for (std::uint64_t position = 0; position < 25; ++position) {
        std::size_t expected = 0;
        while (expected < runs.size() && runs[expected].end <= position) { ++expected; }
        CHECK(gpu::first_ending_after(runs.data(), runs.size(), position) == expected);
    }
    CHECK(gpu::first_ending_after(runs.data(), 0, 3) == 0);
}

TEST_CASE("exactly the positions in ranges are visited, whole vectors inside of a range in packs") {
    const std::vector<sk::UpdateRange> runs{{0, 1, 0}, {3, 17, 1}, {17, 18, 2}, {18, 18, 0}, {24, 40, 0}};
    std::vector<std::uint64_t> inside;
    for (const auto& run : runs) {
        for (std::uint64_t i = run.begin; i < run.end; ++i) { inside.push_back(i); }
    }
    for (std::uint32_t shift = 0; shift < 4; ++shift) {
        CHECK(visit(gpu::Tiling<4>{40, shift, true}, runs).all == inside);
        CHECK(visit(gpu::Tiling<4>{40, shift, false}, runs).packs == 0);
    }
    CHECK(visit(gpu::Tiling<4>{40, 0, true}, runs).packs == 3 + 4);
    CHECK(visit(gpu::Tiling<4>{40, 0, true}, std::vector<sk::UpdateRange>()).all.empty());
}
