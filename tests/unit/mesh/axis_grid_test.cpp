// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/axis_grid.hpp>

#include "../../test_size.hpp"
#include "../thrown_message.hpp"
#include "arange.hpp"

namespace axis_grid_test {

namespace {

using mesh_oracle::Arange;
using mesh_oracle::members_of;
using shardkit::AxisGrid;
using shardkit::NamedAxis;
using Names = std::vector<std::string_view>;

/// Every ordered choice of distinct axes of the grid, the empty one included.
std::vector<Names> ordered_subsets(const AxisGrid& grid) {
    std::vector<Names> found{{}};
    for (std::size_t i = 0; i < found.size(); ++i) {
        for (std::size_t a = 0; a < grid.axis_count(); ++a) {
            const std::string_view name = grid.axis(a).name;
            if (std::find(found[i].begin(), found[i].end(), name) == found[i].end()) {
                Names longer = found[i];
                longer.push_back(name);
                found.push_back(longer);
            }
        }
    }
    return found;
}

/// Size, coordinates, strides and the groups of every ordered set of axes, against the written-out arange.
void check_grid(const AxisGrid& grid) {
    const Arange oracle(grid);
    REQUIRE(grid.size() == oracle.size());
    for (std::size_t rank = 0; rank < grid.size(); ++rank) {
        std::size_t sum = 0;
        for (std::size_t a = 0; a < grid.axis_count(); ++a) {
            const std::size_t coordinate = grid.coordinate(grid.axis(a).name, rank);
            REQUIRE(coordinate == oracle.coordinate(grid.axis(a).name, rank));
            sum += coordinate * grid.stride(a);
        }
        REQUIRE(sum == rank);
    }
    for (const Names& names : ordered_subsets(grid)) {
        std::map<std::size_t, std::set<std::size_t>> by_color;
        for (std::size_t rank = 0; rank < grid.size(); ++rank) {
            const auto group = grid.group(names, rank);
            const auto members = members_of(group);
            REQUIRE(members == oracle.group(names, rank));
            REQUIRE(group.member(group.index()) == rank);
            REQUIRE(group.color() == members.front());
            by_color[group.color()].insert(rank);
        }
        // A partition: each color holds exactly its group, and the groups hold every rank once.
        std::size_t seen = 0;
        for (const auto& [color, ranks] : by_color) {
            const auto members = members_of(grid.group(names, color));
            REQUIRE(std::set<std::size_t>(members.begin(), members.end()) == ranks);
            REQUIRE(members.size() == ranks.size());
            seen += ranks.size();
        }
        REQUIRE(seen == grid.size());
    }
}

}  // namespace

TEST_CASE("AxisGrid: every three-axis grid up to 4x3x3 is arange().reshape()") {
    for (std::size_t a = 1; a <= 4; ++a) {
        for (std::size_t b = 1; b <= 3; ++b) {
            for (std::size_t c = 1; c <= 3; ++c) { check_grid({{"a", a}, {"b", b}, {"c", c}}); }
        }
    }
}

TEST_CASE("AxisGrid: no, one, two, four and five axes") {
    check_grid({});
    for (std::size_t n = 1; n <= 9; ++n) { check_grid({{"only", n}}); }
    check_grid({{"slow", 5}, {"fast", 7}});
    const std::size_t cp = test_size::reduced() ? 1 : 2;  // the time grows with the square of the ranks
    check_grid({{"pp", 2}, {"dp", 3}, {"tp", 2}, {"cp", cp}});
    check_grid({{"pp", 2}, {"dp", 1}, {"ep", 3}, {"tp", 2}, {"cp", cp}});
}

TEST_CASE("AxisGrid: literals of 2x3x2") {
    const AxisGrid grid{{"dp", 2}, {"tp", 3}, {"cp", 2}};
    CHECK(grid.size() == 12);
    CHECK(grid.stride(0) == 6);
    CHECK(grid.stride(1) == 2);
    CHECK(grid.stride(2) == 1);
    CHECK(grid.coordinate("dp", 7) == 1);
    CHECK(grid.coordinate("tp", 7) == 0);
    CHECK(grid.coordinate("cp", 7) == 1);
    CHECK(members_of(grid.group(Names{"tp"}, 7)) == std::vector<std::size_t>{7, 9, 11});
    CHECK(members_of(grid.group(Names{"dp", "cp"}, 7)) == std::vector<std::size_t>{0, 1, 6, 7});
    CHECK(members_of(grid.group(Names{"cp", "dp"}, 7)) == std::vector<std::size_t>{0, 6, 1, 7});
    CHECK(grid.group(Names{"cp", "dp"}, 7).index() == 3);
    CHECK(grid.group(Names{"cp", "dp"}, 1).index() == 2);
    CHECK(grid.describe() == "dp=2 tp=3 cp=2");
    CHECK(AxisGrid{}.describe().empty());
}

TEST_CASE("AxisGrid: splitting an axis renames ranks and moves none") {
    for (std::size_t dp = 1; dp <= 12; ++dp) {
        for (std::size_t inner = 1; inner <= dp; ++inner) {
            if (dp % inner != 0) { continue; }
            for (std::size_t tp = 1; tp <= 2; ++tp) {
                const AxisGrid grid{{"dp", dp}, {"tp", tp}, {"cp", 2}};
                const AxisGrid split = grid.split_axis("dp", inner, "outer", "inner");
                REQUIRE(split.axis_count() == 4);
                REQUIRE(split.size() == grid.size());
                REQUIRE(split.extent("outer") * inner == dp);
                REQUIRE(split.extent("inner") == inner);
                REQUIRE_FALSE(split.has("dp"));
                const Arange oracle(split);
                for (std::size_t rank = 0; rank < grid.size(); ++rank) {
                    REQUIRE(grid.coordinate("dp", rank) ==
                            oracle.coordinate("outer", rank) * inner + oracle.coordinate("inner", rank));
                    REQUIRE(split.coordinate("tp", rank) == grid.coordinate("tp", rank));
                    REQUIRE(split.coordinate("cp", rank) == grid.coordinate("cp", rank));
                    REQUIRE(split.group(Names{"outer", "inner"}, rank) == grid.group(Names{"dp"}, rank));
                    REQUIRE(split.group(Names{"outer", "inner", "cp"}, rank) == grid.group(Names{"dp", "cp"}, rank));
                    REQUIRE(members_of(split.group(Names{"inner"}, rank)) == oracle.group({"inner"}, rank));
                    REQUIRE(members_of(split.group(Names{"outer"}, rank)) == oracle.group({"outer"}, rank));
                }
            }
        }
    }
}

TEST_CASE("AxisGrid: a middle or last axis splits in its place") {
    const AxisGrid grid{{"a", 2}, {"b", 6}, {"c", 4}};
    const AxisGrid middle = grid.split_axis("b", 2, "b_slow", "b_fast");
    CHECK(middle.describe() == "a=2 b_slow=3 b_fast=2 c=4");
    CHECK(grid.split_axis("c", 4, "c_slow", "c_fast").describe() == "a=2 b=6 c_slow=1 c_fast=4");
    check_grid(test_size::reduced() ? AxisGrid{{"a", 2}, {"b", 6}, {"c", 1}}.split_axis("b", 2, "b_slow", "b_fast")
                                    : middle);
}

TEST_CASE("AxisGrid: refused, with what was given") {
    CHECK_INVALID_ARGUMENT((AxisGrid{{"dp", 2}, {"tp", 0}}), "mesh: axis tp has extent 0, expected at least 1");
    CHECK_INVALID_ARGUMENT((AxisGrid{{"dp", 2}, {"dp", 2}}), "mesh: axis dp given twice");
    constexpr std::size_t half = std::size_t{1} << 32U;
    CHECK_INVALID_ARGUMENT((AxisGrid{{"dp", half}, {"tp", half}}),
                           "mesh: axis tp = 4294967296 makes the number of ranks overflow");
    CHECK(AxisGrid{{"dp", half}, {"tp", half - 1}}.size() == 0xffffffff00000000U);
    CHECK(AxisGrid{{"all", std::numeric_limits<std::size_t>::max()}}.size() ==
          std::numeric_limits<std::size_t>::max());
    CHECK_NOTHROW(AxisGrid{{"1", 1}, {"2", 1}, {"3", 1}, {"4", 1}, {"5", 1}, {"6", 1}, {"7", 1}, {"8", 2}});
    CHECK_INVALID_ARGUMENT(
        (AxisGrid{{"1", 1}, {"2", 1}, {"3", 1}, {"4", 1}, {"5", 1}, {"6", 1}, {"7", 1}, {"8", 2}, {"9", 1}}),
        "mesh: more than 8 axes");

    const AxisGrid grid{{"dp", 4}, {"tp", 2}};
    CHECK_INVALID_ARGUMENT(grid.extent("cp"), "mesh dp=4 tp=2: no axis cp");
    CHECK_INVALID_ARGUMENT(grid.coordinate("ep", 0), "mesh dp=4 tp=2: no axis ep");
    CHECK_INVALID_ARGUMENT(grid.group(Names{"dp", "pp"}, 0), "mesh dp=4 tp=2: no axis pp");
    CHECK_INVALID_ARGUMENT(grid.group(Names{"dp"}, 8), "mesh dp=4 tp=2: no rank 8");
    CHECK_INVALID_ARGUMENT(grid.group(Names{"dp", "dp"}, 0), "mesh dp=4 tp=2: axis dp given twice for one group");
    CHECK_INVALID_ARGUMENT(grid.split_axis("dp", 3, "x", "y"), "mesh dp=4 tp=2: groups of 3 do not divide dp = 4");
    CHECK_INVALID_ARGUMENT(grid.split_axis("dp", 0, "x", "y"), "mesh dp=4 tp=2: groups of 0 do not divide dp = 4");
    CHECK_INVALID_ARGUMENT(grid.split_axis("dp", 8, "x", "y"), "mesh dp=4 tp=2: groups of 8 do not divide dp = 4");
    CHECK_INVALID_ARGUMENT(grid.split_axis("cp", 1, "x", "y"), "mesh dp=4 tp=2: no axis cp");
    CHECK_INVALID_ARGUMENT(grid.split_axis("dp", 2, "tp", "y"), "mesh: axis tp given twice");
    const AxisGrid eight{{"1", 1}, {"2", 1}, {"3", 1}, {"4", 1}, {"5", 1}, {"6", 1}, {"7", 1}, {"8", 4}};
    CHECK_INVALID_ARGUMENT(eight.split_axis("8", 2, "x", "y"), "mesh: more than 8 axes");
}

TEST_CASE("AxisGrid: past 2^32 ranks") {
    const AxisGrid grid{{"dp", 3}, {"tp", std::size_t{1} << 33U}, {"cp", 5}};
    CHECK(grid.size() == 15 * (std::size_t{1} << 33U));
    const std::size_t rank = (2 * (std::size_t{1} << 33U) + 7'000'000'000) * 5 + 3;
    CHECK(grid.coordinate("dp", rank) == 2);
    CHECK(grid.coordinate("tp", rank) == 7'000'000'000);
    CHECK(grid.coordinate("cp", rank) == 3);
    const auto group = grid.group(Names{"tp"}, rank);
    CHECK(group.index() == 7'000'000'000);
    CHECK(group.member(group.index()) == rank);
    CHECK(group.member(0) == 2 * (std::size_t{1} << 33U) * 5 + 3);
}

// Usable in constant expressions.
static_assert(AxisGrid{{"dp", 2}, {"tp", 3}}.size() == 6);
static_assert(AxisGrid{{"dp", 2}, {"tp", 3}}.coordinate("tp", 5) == 2);
static_assert(AxisGrid{{"dp", 8}}.split_axis("dp", 4, "replicate", "shard").extent("replicate") == 2);
static_assert(AxisGrid{{"dp", 2}, {"cp", 3}}.has("cp") && !AxisGrid{{"dp", 2}}.has("cp"));

}  // namespace axis_grid_test
