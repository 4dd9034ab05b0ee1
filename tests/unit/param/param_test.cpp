// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string_view>
#include <type_traits>

#include <doctest/doctest.h>

#include <shardkit/param/params.hpp>

namespace param_test {

namespace {

using namespace shardkit;

struct Weight : Param<"weight", float, 3, dynamic> {};
struct Fixed : Param<"fixed", double, 4, 5, 6> {};
struct Scale : Param<"scale", bf16> {};
struct Deep : Param<"deep", fp16, 1, 2, 1, 2, 1, 2, 1, 2> {};
struct Head : Alias<"head.weight", Weight> {};

static_assert(Weight::name == "weight" && Head::name == "head.weight");
static_assert(std::is_same_v<Weight::Element, float> && std::is_same_v<Fixed::Element, double>);
static_assert(std::is_same_v<Scale::Element, bf16> && std::is_same_v<Deep::Element, fp16>);
static_assert(Weight::rank == 2 && Fixed::rank == 3 && Scale::rank == 0 && Deep::rank == 8);
static_assert(Weight::static_extents == std::array<std::size_t, 2>{3, dynamic});
static_assert(Fixed::static_extents == std::array<std::size_t, 3>{4, 5, 6});
static_assert(!Weight::fully_static && Fixed::fully_static && Deep::fully_static);
static_assert(Scale::fully_static, "a scalar leaves nothing open");
static_assert(std::is_same_v<Head::AliasOf, Weight>);
static_assert(std::is_empty_v<Weight> && std::is_trivially_default_constructible_v<Weight>, "a tag: w[Weight{}]");

// Two parameters with the same name and shape are different types.
struct Other : Param<"weight", float, 3, dynamic> {};
static_assert(!std::is_same_v<Weight, Other> && Weight::name == Other::name);

}  // namespace

TEST_CASE("Param: names are views of static storage") {
    CHECK(Weight::name.data() == Other::name.data());
    CHECK(std::string_view(Deep::name) == "deep");
}

}  // namespace param_test
