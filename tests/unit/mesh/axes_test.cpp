// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include <doctest/doctest.h>

#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/axis_grid.hpp>

namespace axes_test {

namespace {

using namespace shardkit;

struct Pp {
    static constexpr std::string_view name = "pp";
};

using Six = Axes<Pp, DpReplicate, DpShard, Tp, Cp>;
static_assert(Six::count == 5 && Axes<>::count == 0);
static_assert(Six::contains<Cp> && !Six::contains<Dp> && !Axes<>::contains<Cp>);
static_assert(Six::names[0] == "pp" && Six::names[1] == "dp_replicate" && Six::names[2] == "dp_shard" &&
              Six::names[3] == "tp" && Six::names[4] == "cp");
static_assert(Axes<Dp>::names[0] == "dp");
static_assert(std::is_same_v<DataAxes, Axes<DpReplicate, DpShard, Cp>>, "slowest first, as ranks are numbered");

template <class From, class Removed>
constexpr AxisNames without = AxisNames(From{}).without(Removed{});
static_assert(without<DataAxes, Axes<DpShard>> == Axes<DpReplicate, Cp>{});
static_assert(without<DataAxes, Axes<DpShard, Cp>> == Axes<DpReplicate>{});
static_assert(without<DataAxes, Axes<Cp, DpShard, DpReplicate>> == Axes<>{});
static_assert(without<DataAxes, Axes<>> == DataAxes{});
static_assert(without<DataAxes, Axes<Tp>> == DataAxes{}, "what is not there is not removed");
static_assert(without<Axes<>, DataAxes> == Axes<>{});
static_assert(without<Axes<Cp, Tp, Dp>, Axes<Tp>> == Axes<Cp, Dp>{}, "order is kept");
static_assert(AxisNames(Axes<Cp, Dp>{}) != AxisNames(Axes<Dp, Cp>{}) && AxisNames(Axes<Cp, Dp>{}).size() == 2);
static_assert(AxisNames(Axes<Cp, Dp>{}).contains("dp") && !AxisNames(Axes<Cp, Dp>{}).contains("tp"));

AxisGrid split(std::size_t replicate, std::size_t shard, std::size_t tp, std::size_t cp) {
    return {{DpReplicate::name, replicate}, {DpShard::name, shard}, {Tp::name, tp}, {Cp::name, cp}};
}

}  // namespace

TEST_CASE("axes_label: an unsplit data axis is dp") {
    const AxisGrid sharded = split(1, 4, 2, 2);
    CHECK(axes_label(sharded, Axes<DpShard>{}) == "dp");
    CHECK(axes_label(sharded, Axes<DpReplicate>{}) == "self");
    CHECK(axes_label(sharded, DataAxes{}) == "dp x cp");
    CHECK(axes_label(sharded, Axes<DpReplicate, Cp>{}) == "cp");
    CHECK(axes_label(sharded, Axes<DpReplicate, DpShard, Tp, Cp>{}) == "dp x tp x cp");
    const AxisGrid replicated = split(4, 1, 2, 2);
    CHECK(axes_label(replicated, Axes<DpReplicate>{}) == "dp");
    CHECK(axes_label(replicated, Axes<DpShard>{}) == "self");
    CHECK(axes_label(replicated, DataAxes{}) == "dp x cp");
}

TEST_CASE("axes_label: the halves of a split data axis have their own names, together they are dp") {
    const AxisGrid hybrid = split(2, 4, 2, 3);
    CHECK(axes_label(hybrid, Axes<DpShard>{}) == "dp_shard");
    CHECK(axes_label(hybrid, Axes<DpReplicate>{}) == "dp_replicate");
    CHECK(axes_label(hybrid, DataAxes{}) == "dp x cp");
    CHECK(axes_label(hybrid, Axes<DpShard, Cp>{}) == "dp_shard x cp");
    CHECK(axes_label(hybrid, Axes<DpReplicate, Cp>{}) == "dp_replicate x cp");
    CHECK(axes_label(hybrid, Axes<Tp>{}) == "tp");
    CHECK(axes_label(hybrid, Axes<Tp, DpReplicate, DpShard>{}) == "tp x dp");
}

TEST_CASE("axes_label: axes of extent 1 are left out; none left is self") {
    const AxisGrid one = split(1, 1, 1, 1);
    CHECK(axes_label(one, DataAxes{}) == "self");
    CHECK(axes_label(one, Axes<Tp>{}) == "self");
    CHECK(axes_label(one, Axes<>{}) == "self");
    CHECK(axes_label(split(1, 3, 1, 1), DataAxes{}) == "dp");
    CHECK(axes_label(split(1, 1, 1, 3), DataAxes{}) == "cp");
    const AxisGrid plain{{Pp::name, 2}, {Dp::name, 3}, {Tp::name, 1}, {Cp::name, 2}};
    CHECK(axes_label(plain, Axes<Dp>{}) == "dp");
    CHECK(axes_label(plain, Axes<Dp, Cp>{}) == "dp x cp");
    CHECK(axes_label(plain, Axes<Cp, Dp>{}) == "cp x dp");
    CHECK(axes_label(plain, Axes<Pp, Tp>{}) == "pp");
}

TEST_CASE("AxisNames: eight at most") {
    AxisNames names;
    for (std::size_t i = 0; i < AxisNames::capacity; ++i) { names.add("pp"); }
    CHECK_THROWS_WITH_AS(names.add("tp"), "AxisNames: more than 8 axes", std::length_error);
}

TEST_CASE("axes_label: of axes that the program chooses, and the names that stand in it") {
    const AxisGrid hybrid = split(2, 2, 2, 3);
    AxisNames axes;
    axes.add("dp_shard");
    CHECK(axes_label(hybrid, axes) == "dp_shard");
    CHECK(named_axes(hybrid, DataAxes{}) == Axes<Dp, Cp>{});
    CHECK(named_axes(hybrid, Axes<DpReplicate, Cp>{}) == Axes<DpReplicate, Cp>{});
    CHECK(named_axes(split(1, 4, 1, 1), DataAxes{}) == Axes<Dp>{});
    CHECK(named_axes(split(1, 1, 1, 1), DataAxes{}) == Axes<>{});
}

}  // namespace axes_test
