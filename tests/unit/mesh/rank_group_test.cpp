// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <string_view>

#include <doctest/doctest.h>

#include <shardkit/mesh/axis_grid.hpp>

namespace rank_group_test {

namespace {

using shardkit::AxisGrid;
using shardkit::RankGroup;
using namespace std::string_view_literals;
constexpr AxisGrid grid{{"a", 2}, {"b", 3}, {"c", 2}};
constexpr std::array a{"a"sv};
constexpr std::array b{"b"sv};
constexpr std::array ac{"a"sv, "c"sv};
constexpr std::array ca{"c"sv, "a"sv};
constexpr std::array<std::string_view, 0> none{};

}  // namespace

TEST_CASE("RankGroup: the default is rank 0 alone") {
    constexpr RankGroup alone;
    static_assert(alone.size() == 1 && alone.index() == 0 && alone.color() == 0 && alone.member(0) == 0);
    CHECK(alone == grid.group(none, 0));
    CHECK_FALSE(alone == grid.group(none, 1));
}

TEST_CASE("RankGroup: equal means the same members in the same order") {
    CHECK(grid.group(b, 1) == grid.group(b, 5));  // 1, 3, 5
    CHECK(grid.group(b, 1).index() == 0);         // the asking rank is no part of equality
    CHECK(grid.group(b, 5).index() == 2);
    CHECK_FALSE(grid.group(b, 1) == grid.group(b, 0));
    CHECK_FALSE(grid.group(a, 0) == grid.group(b, 0));
    CHECK_FALSE(grid.group(ac, 0) == grid.group(ca, 0));  // {0, 1, 6, 7} and {0, 6, 1, 7}
    CHECK_FALSE(grid.group(none, 3) == grid.group(none, 4));
}

TEST_CASE("RankGroup: groups that stem from different meshes compare by ranks alone") {
    constexpr AxisGrid flat{{"x", 12}};
    constexpr std::array x{"x"sv};
    constexpr std::array abc{"a"sv, "b"sv, "c"sv};
    CHECK(flat.group(x, 4) == grid.group(abc, 9));
}

static_assert(grid.group(ac, 7).color() == 0 && grid.group(ac, 7).index() == 3);
static_assert(grid.group(b, 8).member(1) == 8 && grid.group(b, 8).color() == 6);

}  // namespace rank_group_test
