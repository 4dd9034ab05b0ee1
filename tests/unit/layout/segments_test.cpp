// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/layout/segments.hpp>

#include "laid_out.hpp"
#include "layout_oracle.hpp"

namespace segments_test {

namespace {

using namespace shardkit;
using layout_oracle::Map;
using layout_oracle::Owner;

/// Runs of one parameter's elements within `range`, read off the element map.
std::vector<detail::Segment> runs(const Map& map, IndexRange range) {
    std::vector<detail::Segment> found;
    for (std::size_t x = range.begin; x < range.end; ++x) {
        const std::size_t parameter = map.elements[x].parameter;
        if (parameter == Owner::padding) { continue; }
        if (found.empty() || found.back().parameter != parameter) { found.push_back({parameter, {x, x}}); }
        found.back().flat.end = x + 1;
    }
    return found;
}

template <std::size_t N>
std::vector<detail::Segment> segments(const LaidOut<N>& layout, IndexRange range) {
    std::vector<detail::Segment> found;
    detail::for_each_segment(layout.parameters(), range,
                             [&](const detail::Segment& segment) { found.push_back(segment); });
    return found;
}

bool same(const std::vector<detail::Segment>& a, const std::vector<detail::Segment>& b) {
    if (a.size() != b.size()) { return false; }
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (a[i].parameter != b[i].parameter || a[i].flat != b[i].flat) { return false; }
    }
    return true;
}

/// The shards, and every other range of the buffer.
void check(const std::array<std::size_t, 3>& numels, std::size_t shards, std::size_t alignment, Packing packing) {
    const LaidOut<3> layout(numels, shards, alignment, packing);
    const Map map(numels, shards, alignment, packing);
    REQUIRE(map.elements.size() == layout.buffer_numel());
    std::vector<std::size_t> held(3, 0);
    for (std::size_t r = 0; r < shards; ++r) {
        for (const detail::Segment& segment : segments(layout, layout.shard(r))) {
            held[segment.parameter] += segment.flat.size();
        }
    }
    for (std::size_t p = 0; p < 3; ++p) { REQUIRE(held[p] == numels[p]); }
    for (std::size_t begin = 0; begin <= layout.buffer_numel(); ++begin) {
        for (std::size_t end = begin; end <= layout.buffer_numel(); ++end) {
            REQUIRE(same(segments(layout, {begin, end}), runs(map, {begin, end})));
        }
    }
}

constexpr std::size_t covered(IndexRange range) {
    std::size_t count = 0;
    detail::for_each_segment(LaidOut<2>({5, 6}, 2, 4).parameters(), range,
                             [&](const detail::Segment& s) { count += s.flat.size(); });
    return count;
}
static_assert(covered({0, 16}) == 11 && covered({4, 9}) == 2 && covered({5, 8}) == 0);

}  // namespace

TEST_CASE("for_each_segment: exactly the elements that are no padding, for every range of small layouts") {
    for (const std::size_t a : {0U, 1U, 5U, 8U}) {
        for (const std::size_t b : {0U, 1U, 3U, 7U}) {
            for (const std::size_t c : {0U, 2U, 6U}) {
                for (const std::size_t shards : {1U, 3U, 5U}) {
                    for (const std::size_t alignment : {1U, 4U}) {
                        for (const Packing packing : {Packing::aligned, Packing::packed, Packing::exact}) {
                            check({a, b, c}, shards, alignment, packing);
                        }
                    }
                }
            }
        }
    }
}

TEST_CASE("for_each_segment: past 2^32") {
    const LaidOut<2> layout({6'000'000'000, 5}, 2, 32);
    const auto found = segments(layout, layout.shard(1));
    REQUIRE(found.size() == 2);
    CHECK(found[0].parameter == 0);
    CHECK(found[0].flat == IndexRange{3'000'000'032, 6'000'000'000});
    CHECK(found[1].parameter == 1);
    CHECK(found[1].flat == IndexRange{6'000'000'000, 6'000'000'005});
}

}  // namespace segments_test
