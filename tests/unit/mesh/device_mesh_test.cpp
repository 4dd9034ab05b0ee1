// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/mesh/device_mesh.hpp>

#include "../thrown_message.hpp"
#include "arange.hpp"

namespace device_mesh_test {

namespace {

using namespace shardkit;
using mesh_oracle::Arange;
using mesh_oracle::members_of;

/// All of a mesh's arithmetic against the written-out arange in the order of A, B, C.
template <class A, class B, class C>
void check_order(std::size_t dp, std::size_t tp, std::size_t cp) {
    using Mesh = DeviceMesh<dynamic, dynamic, dynamic, RankOrder<A, B, C>>;
    const Mesh mesh(dp, tp, cp);
    const Arange oracle({A::name, B::name, C::name},
                        {mesh.template extent<A>(), mesh.template extent<B>(), mesh.template extent<C>()});
    REQUIRE(mesh.size() == oracle.size());
    std::set<std::size_t> ranks;
    for (std::size_t d = 0; d < dp; ++d) {
        for (std::size_t t = 0; t < tp; ++t) {
            for (std::size_t c = 0; c < cp; ++c) {
                const std::size_t rank = mesh.rank(d, t, c);
                ranks.insert(rank);
                REQUIRE(oracle.coordinate("dp", rank) == d);
                REQUIRE(oracle.coordinate("tp", rank) == t);
                REQUIRE(oracle.coordinate("cp", rank) == c);
                REQUIRE(mesh.template coordinate<Dp>(rank) == d);
                REQUIRE(mesh.template coordinate<Tp>(rank) == t);
                REQUIRE(mesh.template coordinate<Cp>(rank) == c);
                REQUIRE(members_of(mesh.template group<Axes<Dp>>(rank)) == oracle.group({"dp"}, rank));
                REQUIRE(members_of(mesh.template group<Axes<Tp>>(rank)) == oracle.group({"tp"}, rank));
                REQUIRE(members_of(mesh.template group<Axes<Cp>>(rank)) == oracle.group({"cp"}, rank));
                REQUIRE(members_of(mesh.template group<Axes<Dp, Cp>>(rank)) == oracle.group({"dp", "cp"}, rank));
                REQUIRE(members_of(mesh.template group<Axes<Cp, Tp>>(rank)) == oracle.group({"cp", "tp"}, rank));
                REQUIRE(mesh.template group<Axes<Dp, Tp, Cp>>(rank).size() == mesh.size());
            }
        }
    }
    REQUIRE(ranks.size() == mesh.size());
}

void check_all_orders(std::size_t dp, std::size_t tp, std::size_t cp) {
    check_order<Dp, Tp, Cp>(dp, tp, cp);
    check_order<Dp, Cp, Tp>(dp, tp, cp);
    check_order<Tp, Dp, Cp>(dp, tp, cp);
    check_order<Tp, Cp, Dp>(dp, tp, cp);
    check_order<Cp, Dp, Tp>(dp, tp, cp);
    check_order<Cp, Tp, Dp>(dp, tp, cp);
}

/// A mesh with static extents, and every mixed one, says the same as the dynamic one.
template <class Mesh>
void check_agrees(const Mesh& mesh, std::size_t dp, std::size_t tp, std::size_t cp) {
    const DeviceMesh<dynamic, dynamic, dynamic> other(dp, tp, cp);
    REQUIRE(mesh.dp() == dp);
    REQUIRE(mesh.tp() == tp);
    REQUIRE(mesh.cp() == cp);
    REQUIRE(mesh.size() == other.size());
    REQUIRE(mesh.describe() == other.describe());
    for (std::size_t rank = 0; rank < mesh.size(); ++rank) {
        REQUIRE(mesh.template coordinate<Dp>(rank) == other.template coordinate<Dp>(rank));
        REQUIRE(mesh.template coordinate<Tp>(rank) == other.template coordinate<Tp>(rank));
        REQUIRE(mesh.template coordinate<Cp>(rank) == other.template coordinate<Cp>(rank));
        REQUIRE(mesh.template group<Axes<Dp, Cp>>(rank) == other.template group<Axes<Dp, Cp>>(rank));
    }
}

template <std::size_t DP, std::size_t TP, std::size_t CP>
void check_static() {
    check_agrees(DeviceMesh<DP, TP, CP>{}, DP, TP, CP);
    check_agrees(DeviceMesh<DP, TP, CP>{DP, TP, CP}, DP, TP, CP);
    check_agrees(DeviceMesh<dynamic, TP, CP>{DP}, DP, TP, CP);
    check_agrees(DeviceMesh<DP, dynamic, CP>{DP, TP}, DP, TP, CP);
    check_agrees(DeviceMesh<DP, TP, dynamic>{DP, TP, CP}, DP, TP, CP);
    check_agrees(DeviceMesh<dynamic, dynamic, CP>{DP, TP}, DP, TP, CP);
}

template <class Mesh>
concept DefaultMade = std::is_default_constructible_v<Mesh>;

}  // namespace

TEST_CASE("DeviceMesh: every mesh up to 4x3x3 in every rank order is arange().reshape()") {
    for (std::size_t dp = 1; dp <= 4; ++dp) {
        for (std::size_t tp = 1; tp <= 3; ++tp) {
            for (std::size_t cp = 1; cp <= 3; ++cp) { check_all_orders(dp, tp, cp); }
        }
    }
    check_all_orders(1, 1, 7);
    check_all_orders(5, 2, 1);
}

TEST_CASE("DeviceMesh: rank = (dp * TP + tp) * CP + cp") {
    const DeviceMesh mesh(4, 3, 2);
    for (std::size_t d = 0; d < 4; ++d) {
        for (std::size_t t = 0; t < 3; ++t) {
            for (std::size_t c = 0; c < 2; ++c) {
                CHECK(mesh.rank(d, t, c) == (d * 3 + t) * 2 + c);
                CHECK(mesh.group<Axes<Dp, Cp>>(mesh.rank(d, t, c)).index() == d * 2 + c);
            }
        }
    }
}

TEST_CASE("DeviceMesh: static, dynamic and mixed extents agree") {
    check_static<1, 1, 1>();
    check_static<4, 1, 1>();
    check_static<2, 2, 2>();
    check_static<3, 1, 2>();
    check_static<1, 5, 3>();
    check_static<6, 2, 1>();
}

TEST_CASE("DeviceMesh: names, core grid and deduction") {
    CHECK(DeviceMesh<4, 2, 1>{}.describe() == "4x2x1");
    CHECK(DeviceMesh<dynamic, 2, 3>{7}.describe() == "7x2x3");
    CHECK(DeviceMesh<4, 2, 3>{}.grid().describe() == "dp=4 tp=2 cp=3");
    CHECK(DeviceMesh<4, 2, 3, RankOrder<Tp, Cp, Dp>>{}.grid().describe() == "tp=2 cp=3 dp=4");
    CHECK(DeviceMesh<4, 2, 3, RankOrder<Tp, Cp, Dp>>{}.describe() == "4x2x3");
    static_assert(std::is_same_v<decltype(DeviceMesh(4)), DeviceMesh<dynamic, 1, 1>>);
    static_assert(std::is_same_v<decltype(DeviceMesh(4, 2)), DeviceMesh<dynamic, dynamic, 1>>);
    static_assert(std::is_same_v<decltype(DeviceMesh(4, 2, 2)), DeviceMesh<dynamic, dynamic, dynamic>>);
    CHECK(DeviceMesh(4).size() == 4);
    CHECK(DeviceMesh(4, 3).size() == 12);
}

TEST_CASE("DeviceMesh: refused, with what was given and expected") {
    CHECK_INVALID_ARGUMENT((DeviceMesh<4, 2, 1>(3)), "DeviceMesh: dp = 3 given, expected 4 as in the type");
    CHECK_INVALID_ARGUMENT((DeviceMesh<dynamic, 2, 1>(3, 4)), "DeviceMesh: tp = 4 given, expected 2 as in the type");
    CHECK_INVALID_ARGUMENT((DeviceMesh<dynamic, 2, 3>(3, 2, 1)),
                           "DeviceMesh: cp = 1 given, expected 3 as in the type");
    CHECK_INVALID_ARGUMENT((DeviceMesh<4, 1, dynamic>(4)), "DeviceMesh: cp is dynamic and was not given");
    CHECK_INVALID_ARGUMENT((DeviceMesh<dynamic, dynamic>(4)), "DeviceMesh: tp is dynamic and was not given");
    CHECK_INVALID_ARGUMENT(DeviceMesh<dynamic>(0), "mesh: axis dp has extent 0, expected at least 1");
    CHECK_INVALID_ARGUMENT((DeviceMesh<dynamic, 1, dynamic>(2, 1, 0)),
                           "mesh: axis cp has extent 0, expected at least 1");
    constexpr std::size_t half = std::size_t{1} << 32U;
    CHECK_INVALID_ARGUMENT((DeviceMesh<dynamic, dynamic>(half, half)),
                           "mesh: axis tp = 4294967296 makes the number of ranks overflow");
    CHECK(DeviceMesh<dynamic, dynamic>(half, half - 1).size() == 0xffffffff00000000U);
    CHECK_INVALID_ARGUMENT((DeviceMesh<2, 2>{}.group<Axes<Dp>>(4)), "mesh dp=2 tp=2 cp=1: no rank 4");
    CHECK_INVALID_ARGUMENT((DeviceMesh<2, 2>{}.group<Axes<DpShard>>(0)), "mesh dp=2 tp=2 cp=1: no axis dp_shard");
    CHECK_INVALID_ARGUMENT((DeviceMesh<2, 2>{}.coordinate<DpReplicate>(0)),
                           "mesh dp=2 tp=2 cp=1: no axis dp_replicate");
}

// The whole arithmetic is usable in constant expressions.
static_assert(DeviceMesh<4, 2, 3>{}.size() == 24);
static_assert(DeviceMesh<4, 2, 3>{}.rank(3, 1, 2) == 23 && DeviceMesh<4, 2, 3>{}.rank(1, 0, 2) == 8);
static_assert(DeviceMesh<4, 2, 3>{}.coordinate<Tp>(10) == 1);
static_assert(DeviceMesh<4, 2, 3>{}.group<Axes<Dp, Cp>>(10).size() == 12);
static_assert(DeviceMesh<4, 2, 3>{}.extent<Cp>() == 3 && DeviceMesh<dynamic>{9}.extent<Dp>() == 9);
static_assert(DeviceMesh<4, 2, dynamic>::static_dp == 4 && DeviceMesh<4, 2, dynamic>::static_cp == dynamic);
static_assert(DefaultMade<DeviceMesh<4, 2, 1>>);
static_assert(!DefaultMade<DeviceMesh<dynamic, 2, 1>> && !DefaultMade<DeviceMesh<4, 2, dynamic>>);

}  // namespace device_mesh_test
