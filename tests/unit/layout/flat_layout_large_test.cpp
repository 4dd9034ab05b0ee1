// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <stdexcept>

#include <doctest/doctest.h>

#include <shardkit/layout/flat_layout.hpp>

#include "../thrown_message.hpp"
#include "laid_out.hpp"

namespace flat_layout_large_test {

namespace {

using namespace shardkit;
__extension__ using Wide = unsigned __int128;

constexpr std::size_t largest = std::numeric_limits<std::size_t>::max();

/// The layout in 128-bit arithmetic, where nothing overflows.
template <std::size_t N>
struct WideLayout {
    std::array<Wide, N> offsets{};
    Wide total = 0;
    Wide shard = 0;
    Wide buffer = 0;

    WideLayout(const std::array<std::size_t, N>& numels, std::size_t shards, std::size_t alignment, Packing packing) {
        for (std::size_t p = 0; p < N; ++p) {
            offsets[p] = packing == Packing::aligned ? (total + alignment - 1) / alignment * alignment : total;
            total = offsets[p] + numels[p];
        }
        shard = ((total + shards - 1) / shards + alignment - 1) / alignment * alignment;
        buffer = packing == Packing::exact ? total : shard * shards;
    }
};

template <std::size_t N>
std::optional<LaidOut<N>> made(const std::array<std::size_t, N>& numels, std::size_t shards, std::size_t alignment,
                               Packing packing) {
    try {
        return LaidOut<N>(numels, shards, alignment, packing);
    } catch (const std::length_error&) { return std::nullopt; }
}

/// Right, or refused; and never refused while more than the padding's size is left. Returns whether it was made.
template <std::size_t N>
bool check(const std::array<std::size_t, N>& numels, std::size_t shards, std::size_t alignment, Packing packing) {
    const WideLayout<N> wide(numels, shards, alignment, packing);
    const auto layout = made<N>(numels, shards, alignment, packing);
    if (!layout) {
        REQUIRE(wide.total + Wide{shards} * alignment + alignment > Wide{largest});
        return false;
    }
    for (std::size_t p = 0; p < N; ++p) { REQUIRE(Wide{layout->range(p).begin} == wide.offsets[p]); }
    REQUIRE(Wide{layout->total()} == wide.total);
    REQUIRE(Wide{layout->shard_numel()} == wide.shard);
    REQUIRE(Wide{layout->buffer_numel()} == wide.buffer);
    for (const std::size_t r : {std::size_t{0}, shards / 2, shards - 1}) {
        const Wide begin = wide.shard * r < wide.buffer ? wide.shard * r : wide.buffer;
        const Wide end = begin + wide.shard < wide.buffer ? begin + wide.shard : wide.buffer;
        REQUIRE(Wide{layout->shard(r).begin} == begin);
        REQUIRE(Wide{layout->shard(r).end} == end);
    }
    return true;
}

constexpr std::array packings{Packing::aligned, Packing::packed, Packing::exact};

}  // namespace

TEST_CASE("FlatLayout: literals past 2^32 elements") {
    constexpr LaidOut<3> layout({5'000'000'001, 3, 7'000'000'000}, 8, 32);
    static_assert(layout.range(1).begin == 5'000'000'032);
    static_assert(layout.range(2).begin == 5'000'000'064);
    static_assert(layout.total() == 12'000'000'064);
    static_assert(layout.shard_numel() == 1'500'000'032);
    static_assert(layout.buffer_numel() == 12'000'000'256);
    static_assert(layout.shard(7) == IndexRange{10'500'000'224, 12'000'000'256});
    CHECK(layout.range(2) == IndexRange{5'000'000'064, 12'000'000'064});
}

TEST_CASE("FlatLayout: sizes around powers of two up to 2^63, against 128-bit arithmetic") {
    for (unsigned bit = 30; bit < 64; ++bit) {
        for (const std::size_t delta : {std::size_t{0}, std::size_t{1}, std::size_t{17}, largest, largest - 16}) {
            const std::size_t n = (std::size_t{1} << bit) + delta;  // wraps to one or 17 less for the last two
            for (const std::size_t shards : {1U, 2U, 3U, 7U, 64U, 1000U}) {
                for (const std::size_t alignment : {1U, 16U, 64U}) {
                    for (const Packing packing : packings) {
                        CHECK(check<1>({n}, shards, alignment, packing));
                        check<2>({n, 5}, shards, alignment, packing);
                        check<3>({3, n, n}, shards, alignment, packing);
                    }
                }
            }
        }
    }
}

TEST_CASE("FlatLayout: within a few elements of the overflow it is right or refused, never wrapped") {
    std::size_t refused = 0;
    std::size_t accepted = 0;
    for (std::size_t below = 0; below < 700; ++below) {
        for (const std::size_t shards : {1U, 2U, 3U, 5U, 64U}) {
            for (const std::size_t alignment : {1U, 4U, 8U}) {
                for (const Packing packing : packings) {
                    const bool one = check<1>({largest - below}, shards, alignment, packing);
                    const bool two = check<2>({largest / 2, largest / 2 - below}, shards, alignment, packing);
                    (one ? accepted : refused) += 1;
                    (two ? accepted : refused) += 1;
                }
            }
        }
    }
    CHECK(refused > 0);
    CHECK(accepted > 0);
}

TEST_CASE("FlatLayout: sums, products and padding that overflow are refused") {
    const auto message = [](auto make) { return thrown_message<std::length_error>(make); };
    constexpr const char* expected = "FlatLayout: the group's element count overflows 64 bits";
    CHECK(message([] { LaidOut<2>({largest, 1}, 1, 1, Packing::packed); }) == expected);
    CHECK(message([] { LaidOut<2>({largest, 1}, 1, 1, Packing::exact); }) == expected);
    CHECK(message([] { LaidOut<2>({largest - 3, 1}, 1, 8); }) == expected);
    CHECK(message([] { LaidOut<1>({largest}, 2, 1); }) == expected);
    CHECK(message([] { LaidOut<1>({1}, largest, 2); }) == expected);
    CHECK(message([] { LaidOut<1>({1}, largest / 2, 8); }) == expected);
    CHECK(message([] { LaidOut<3>({largest / 2, largest / 2, largest / 2}, 1, 1, Packing::packed); }) == expected);
}

TEST_CASE("FlatLayout: random sizes of every magnitude, against 128-bit arithmetic") {
    std::mt19937_64 random(20240521);
    const auto any = [&](unsigned most_bits) {
        return static_cast<std::size_t>(random() >> (64 - 1 - random() % most_bits));
    };
    std::size_t accepted = 0;
    for (int i = 0; i < 20000; ++i) {
        const std::array<std::size_t, 4> numels{any(64), any(62), any(40), any(63)};
        const std::size_t shards = 1 + any(i % 3 == 0 ? 63 : 12);
        const std::size_t alignment = std::size_t{1} << (random() % 8);
        accepted += check<4>(numels, shards, alignment, packings[static_cast<std::size_t>(i) % 3]) ? 1U : 0U;
    }
    CHECK(accepted > 5000);
}

}  // namespace flat_layout_large_test
