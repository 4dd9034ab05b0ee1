// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/kernels/update.hpp>

namespace sk = shardkit;
namespace gpu = shardkit::gpu;

namespace span_walk_test {

static_assert(gpu::detail::lanes_for<float, float, float> == 4);
static_assert(gpu::detail::lanes_for<double> == 2);
static_assert(gpu::detail::lanes_for<sk::bf16> == 8);
static_assert(gpu::detail::lanes_for<float, sk::bf16> == 4);
static_assert(gpu::detail::lanes_for<double, sk::bf16> == 2);
static_assert(gpu::detail::lanes_for<std::uint8_t> == 16);
static_assert(sizeof(gpu::detail::AlignedPack<float, 4>) == 16 && alignof(gpu::detail::AlignedPack<float, 4>) == 16);
static_assert(sizeof(gpu::detail::AlignedPack<sk::bf16, 4>) == 8 &&
              alignof(gpu::detail::AlignedPack<sk::bf16, 4>) == 8);
static_assert(sizeof(gpu::detail::AlignedPack<sk::bf16, 1>) == 2 &&
              alignof(gpu::detail::AlignedPack<sk::bf16, 1>) == 2);

namespace {

/// The positions of all indices: what was loaded and finished, in packs and one by one.
struct Visits {
    std::vector<std::uint64_t> all;
    std::size_t packs = 0;
    std::size_t loaded = 0;
    std::size_t most_loaded = 0;  ///< before the first was finished

    std::vector<std::uint64_t> sorted() const {
        auto positions = all;
        std::sort(positions.begin(), positions.end());
        return positions;
    }
};

struct Record {
    Visits* visits;

    template <std::size_t N>
    std::uint64_t load(std::uint64_t position) const {
        visits->most_loaded = std::max(visits->most_loaded, ++visits->loaded);
        return position;
    }
    template <std::size_t N>
    void finish(std::uint64_t position, std::uint64_t loaded) const {
        CHECK(loaded == position);
        visits->loaded = 0;
        for (std::size_t i = 0; i < N; ++i) { visits->all.push_back(position + i); }
        visits->packs += N > 1 ? 1U : 0U;
    }
};

/// The same in ranges: nothing outside of the range that the pass was given.
struct RecordIn {
    Visits* visits;

    struct Step {
        Record record;
        sk::rules::UpdateRange range;

        template <std::size_t N>
        std::uint64_t load(std::uint64_t position) const {
            CHECK(range.begin <= position);
            CHECK(position + N <= range.end);
            return record.load<N>(position);
        }
        template <std::size_t N>
        void finish(std::uint64_t position, std::uint64_t loaded) const {
            record.finish<N>(position, loaded);
        }
    };
    Step operator()(const sk::rules::UpdateRange& range) const { return {{visits}, range}; }
};

template <std::size_t Lanes, std::size_t Vectors>
Visits visit(const gpu::detail::Tiling<Lanes, Vectors>& tiling) {
    Visits visits;
    for (std::uint64_t i = 0; i < tiling.indices(); ++i) { gpu::detail::for_each_pack(tiling, i, Record{&visits}); }
    return visits;
}

using Runs = std::vector<sk::rules::UpdateRange>;
template <class Range>
gpu::detail::RangeTable<Range> table(const std::vector<Range>& ranges) {
    return {ranges.data(), static_cast<std::uint32_t>(ranges.size())};
}

/// What one index visits in ranges, all its vectors together, or one after the other.
template <std::size_t Lanes, std::size_t Vectors>
void visit_index(const gpu::detail::Tiling<Lanes, Vectors>& tiling, std::uint64_t index, const Runs& runs,
                 bool in_turn, Visits& visits) {
    if (in_turn) {
        gpu::detail::for_each_pack_in_turn(tiling, index, table(runs), RecordIn{&visits});
        return;
    }
    gpu::detail::for_each_range_in(
        tiling.chunk(index), runs.data(), runs.size(), [&](const sk::rules::UpdateRange& run) {
            gpu::detail::for_each_pack(tiling, index, {run.begin, run.end}, RecordIn{&visits}(run));
        });
}
template <std::size_t Lanes, std::size_t Vectors>
Visits visit(const gpu::detail::Tiling<Lanes, Vectors>& tiling, const Runs& runs, bool in_turn) {
    Visits visits;
    for (std::uint64_t i = 0; i < tiling.indices(); ++i) { visit_index(tiling, i, runs, in_turn, visits); }
    return visits;
}

/// A range that counts how often its end is read.
struct CountedRange {
    struct End {
        std::uint64_t value;
        std::size_t* reads;

        operator std::uint64_t() const { return ++*reads, value; }
    };
    std::uint64_t begin = 0;
    End end{};
};

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
                CHECK(visit(gpu::detail::Tiling<8>{count, shift, aligned}).all == numbers(count));
                CHECK(visit(gpu::detail::Tiling<8, 2>{count, shift, aligned}).sorted() == numbers(count));
            }
        }
    }
    for (const std::uint64_t count : {1U, 255U, 256U, 257U, 512U, 515U, 1100U}) {
        for (std::uint32_t shift = 0; shift < 4; ++shift) {
            CHECK(visit(gpu::detail::Tiling<4, 2>{count, shift, true}).sorted() == numbers(count));
        }
    }
}

TEST_CASE("a warp's accesses are neighbours, and all loads of an index come before it stores") {
    const gpu::detail::Tiling<4, 3> tiling{2 * 384, 0, true};
    CHECK(tiling.indices() == 64);
    for (std::uint64_t index = 0; index < 64; ++index) {
        Visits visits;
        gpu::detail::for_each_pack(tiling, index, Record{&visits});
        CHECK(visits.most_loaded == 3);
        CHECK(visits.packs == 3);
        for (std::uint64_t v = 0; v < 3; ++v) {
            CHECK(visits.all[4 * v] == index / 32 * 384 + 4 * (index % 32 + 32 * v));
        }
    }
    // Cut by a range's border, the whole vectors still are loaded together; in turn, one is stored before the next.
    const auto most_loaded = [&](std::uint64_t index, std::uint64_t end, bool in_turn) {
        Visits visits;
        visit_index(tiling, index, {{0, end, 0}}, in_turn, visits);
        CHECK(visits.packs == (index == 31 && end == 300 ? 2 : 3));
        return visits.most_loaded;
    };
    for (const std::uint64_t end : {770U, 300U}) { CHECK(most_loaded(0, end, false) == 3); }
    CHECK(most_loaded(31, 300, false) == 2);
    for (const std::uint64_t end : {770U, 300U}) { CHECK(most_loaded(0, end, true) == 1); }
}

TEST_CASE("the ranges of an index's vectors are searched once") {
    std::size_t reads = 0;
    std::vector<CountedRange> ranges;
    for (std::uint64_t i = 0; i < 1000; ++i) { ranges.push_back({i * 1024, {(i + 1) * 1024, &reads}}); }
    const gpu::detail::Tiling<4, 4> tiling{1000 * 1024, 0, true};
    Visits visits;
    gpu::detail::for_each_pack_in_turn(tiling, tiling.indices() / 2, table(ranges),
                                       [&](const CountedRange&) { return Record{&visits}; });
    CHECK(visits.packs == 4);
    CHECK(reads <= 10 + 2 * 4);  // a search, and two looks at the range of each vector
}

TEST_CASE("spans that agree in alignment are read in packs behind a head, others one by one") {
    CHECK(visit(gpu::detail::tile<4>(32, floats)).packs == 8);
    CHECK(visit(gpu::detail::tile<4>(32, floats + 1)).packs == 7);
    CHECK(visit(gpu::detail::tile<4>(32, floats + 1, floats + 5)).packs == 7);
    CHECK(visit(gpu::detail::tile<4>(32, floats + 1, floats + 2)).packs == 0);
    CHECK(visit(gpu::detail::tile<4>(32, floats, halves)).packs == 8);
    // Packs of four: 16 bytes in fp32, 8 in bf16.
    CHECK(visit(gpu::detail::tile<4>(32, floats + 1, halves + 5)).packs == 7);
    CHECK(visit(gpu::detail::tile<4>(32, halves + 5, floats + 1)).packs == 7);
    CHECK(visit(gpu::detail::tile<4>(32, floats + 2, halves + 5)).packs == 0);
    const float* const left_out = nullptr;
    CHECK(visit(gpu::detail::tile<4>(32, halves + 5, left_out)).packs == 7);
}

TEST_CASE("whole packs lie at aligned addresses") {
    for (std::size_t offset = 0; offset < 8; ++offset) {
        const auto tiling = gpu::detail::tile<4>(40, floats + offset, halves + offset);
        CHECK(tiling.aligned);
        for (std::uint64_t v = 0; v < tiling.indices(); ++v) {
            const auto range = tiling.vector(v, 0);
            if (!tiling.takes_packs(range)) { continue; }
            CHECK(reinterpret_cast<std::uintptr_t>(floats + offset + range.begin) % 16 == 0);
            CHECK(reinterpret_cast<std::uintptr_t>(halves + offset + range.begin) % 8 == 0);
        }
    }
}

TEST_CASE("positions beyond 2^32") {
    const std::uint64_t count = (std::uint64_t{1} << 40U) + 3;
    const gpu::detail::Tiling<4> tiling{count, 1, true};
    CHECK(tiling.indices() == (std::uint64_t{1} << 38U) + 32);
    CHECK(tiling.vector(tiling.indices() - 32, 0) == sk::IndexRange{count - 4, count});
    CHECK(tiling.vector(0, 0) == sk::IndexRange{0, 3});
    const gpu::detail::Tiling<4, 4> chunks{count, 1, true};
    CHECK(chunks.indices() == (std::uint64_t{1} << 36U) + 32);
    CHECK(chunks.vector(chunks.indices() - 32, 0) == sk::IndexRange{count - 4, count});
}

TEST_CASE("first_ending_after finds the range of a position, or the next one") {
    const std::vector<sk::rules::UpdateRange> runs{{2, 5, 0}, {5, 5, 0}, {5, 9, 0}, {20, 21, 0}};
    for (std::uint64_t position = 0; position < 25; ++position) {
        std::size_t expected = 0;
        while (expected < runs.size() && runs[expected].end <= position) { ++expected; }
        CHECK(gpu::detail::first_ending_after(runs.data(), runs.size(), position) == expected);
    }
    CHECK(gpu::detail::first_ending_after(runs.data(), 0, 3) == 0);
}

TEST_CASE("exactly the positions in ranges are visited, whole vectors inside of a range in packs") {
    const std::vector<sk::rules::UpdateRange> runs{{0, 1, 0}, {3, 17, 1}, {17, 18, 2}, {18, 18, 0}, {24, 40, 0}};
    std::vector<std::uint64_t> inside;
    for (const auto& run : runs) {
        for (std::uint64_t i = run.begin; i < run.end; ++i) { inside.push_back(i); }
    }
    for (const bool in_turn : {false, true}) {
        for (std::uint32_t shift = 0; shift < 4; ++shift) {
            CHECK(visit(gpu::detail::Tiling<4>{40, shift, true}, runs, in_turn).sorted() == inside);
            CHECK(visit(gpu::detail::Tiling<4, 2>{40, shift, true}, runs, in_turn).sorted() == inside);
            CHECK(visit(gpu::detail::Tiling<4, 2>{40, shift, false}, runs, in_turn).sorted() == inside);
            CHECK(visit(gpu::detail::Tiling<4>{40, shift, false}, runs, in_turn).packs == 0);
        }
        CHECK(visit(gpu::detail::Tiling<4>{40, 0, true}, runs, in_turn).packs == 3 + 4);
        CHECK(visit(gpu::detail::Tiling<4, 2>{40, 0, true}, runs, in_turn).packs == 3 + 4);
        CHECK(visit(gpu::detail::Tiling<4>{40, 0, true}, Runs(), in_turn).all.empty());
    }
    // Ranges that end within a chunk and begin in later ones, and those with nothing between.
    const Runs far{{1, 140, 0}, {260, 261, 1}, {300, 555, 2}, {1000, 1027, 0}};
    std::vector<std::uint64_t> of_far;
    for (const auto& run : far) {
        for (std::uint64_t i = run.begin; i < run.end; ++i) { of_far.push_back(i); }
    }
    for (const bool in_turn : {false, true}) {
        for (std::uint32_t shift = 0; shift < 4; ++shift) {
            CHECK(visit(gpu::detail::Tiling<4, 2>{1030, shift, true}, far, in_turn).sorted() == of_far);
        }
    }
}

}  // namespace span_walk_test
