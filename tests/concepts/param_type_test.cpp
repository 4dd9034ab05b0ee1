// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <string_view>

#include <doctest/doctest.h>

#include <shardkit/mesh/axes.hpp>
#include <shardkit/param/params.hpp>

namespace param_type_test {

namespace {

using namespace shardkit;

/// The least that is a parameter: no need to derive from Param.
struct Minimal {
    using Element = float;
    static constexpr std::string_view name = "minimal";
    static constexpr std::size_t rank = 1;
    static constexpr std::array<std::size_t, 1> static_extents{3};
};
struct NoElement : Minimal {
    using Element = int;
};
struct NoName : Minimal {
    static constexpr int name = 1;
};
struct NoRank : Minimal {
    static constexpr std::string_view rank = "one";
};
struct NoExtents {
    using Element = float;
    static constexpr std::string_view name = "minimal";
    static constexpr std::size_t rank = 1;
};
static_assert(ParamType<Minimal> && !ParamType<NoElement> && !ParamType<NoName> && !ParamType<NoRank>);
static_assert(!ParamType<NoExtents> && !ParamType<int> && !ParamType<Params<Minimal>>);
static_assert(ParamType<Param<"p", bf16, dynamic>>);

struct Tied : Alias<"tied", Minimal> {};
struct TiedNoName : Tied {
    static constexpr int name = 1;
};
static_assert(AliasType<Tied> && !AliasType<TiedNoName> && !AliasType<Minimal> && !ParamType<Tied>);

// Axes: a type with a name.
struct Expert {
    static constexpr const char* name = "expert";
};
struct Nameless {};
struct Numbered {
    static constexpr int name = 3;
};
static_assert(MeshAxis<Expert> && MeshAxis<Dp> && MeshAxis<DpShard> && !MeshAxis<Nameless> && !MeshAxis<Numbered>);

}  // namespace

TEST_CASE("MeshAxis: names of a user's axes are text in a set of axes") {
    CHECK(Axes<Expert, Cp>::names[0] == "expert");
    CHECK(Axes<Expert, Cp>::names[1] == "cp");
}

}  // namespace param_type_test
