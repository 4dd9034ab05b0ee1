// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include <doctest/doctest.h>

#include <shardkit/layout/index_range.hpp>

namespace index_range_test {

namespace {

using shardkit::IndexRange;
using shardkit::intersect;
using shardkit::relative_to;

constexpr bool holds(IndexRange range, std::size_t x) { return range.begin <= x && x < range.end; }

/// The post-condition of intersect, for every pair of ranges below `limit` and every x.
constexpr bool intersects_exactly(std::size_t limit) {
    for (std::size_t a = 0; a <= limit; ++a) {
        for (std::size_t b = a; b <= limit; ++b) {
            for (std::size_t c = 0; c <= limit; ++c) {
                for (std::size_t d = c; d <= limit; ++d) {
                    const IndexRange common = intersect({a, b}, {c, d});
                    if (common.begin > common.end || common.begin < a || common.end > b) { return false; }
                    for (std::size_t x = 0; x <= limit; ++x) {
                        const bool both = holds({a, b}, x) && holds({c, d}, x);
                        if (holds(common, x) != both) { return false; }
                    }
                }
            }
        }
    }
    return true;
}
static_assert(intersects_exactly(4));

}  // namespace

TEST_CASE("intersect: x is in the result exactly when it is in both; empty results lie inside the first range") {
    CHECK(intersects_exactly(9));
}

TEST_CASE("intersect: past 2^32") {
    constexpr std::size_t far = 5'000'000'000;
    CHECK(intersect({10, far}, {far - 3, far + 9}) == IndexRange{far - 3, far});
    CHECK(intersect({far, far + 9}, {0, far + 4}) == IndexRange{far, far + 4});
}

TEST_CASE("relative_to: the same elements counted from the origin") {
    for (std::size_t origin = 0; origin < 5; ++origin) {
        for (std::size_t begin = origin; begin < 8; ++begin) {
            for (std::size_t end = begin; end < 9; ++end) {
                const IndexRange moved = relative_to({begin, end}, origin);
                CHECK(moved.begin + origin == begin);
                CHECK(moved.size() == end - begin);
            }
        }
    }
}

static_assert(IndexRange{}.empty() && IndexRange{}.size() == 0);
static_assert(IndexRange{3, 7}.size() == 4 && !IndexRange{3, 7}.empty() && IndexRange{3, 3}.empty());
static_assert(IndexRange{3, 7} == IndexRange{3, 7} && !(IndexRange{3, 7} == IndexRange{3, 6}));

}  // namespace index_range_test
