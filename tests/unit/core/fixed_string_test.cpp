// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>
#include <type_traits>

#include <doctest/doctest.h>

#include <shardkit/core/fixed_string.hpp>

namespace fixed_string_test {

namespace {

template <shardkit::FixedString Name>
struct Named {
    static constexpr std::string_view name = Name.view();
};

static_assert(Named<"weight">::name == "weight" && Named<"weight">::name.size() == 6, "without the closing zero");
static_assert(Named<"">::name.empty());
static_assert(std::is_same_v<Named<"a">, Named<"a">> && !std::is_same_v<Named<"a">, Named<"b">>);
static_assert(!std::is_same_v<Named<"a">, Named<"a\0">>, "zeros inside a literal count");
static_assert(Named<"a\0b">::name.size() == 3 && Named<"a\0b">::name[2] == 'b');

}  // namespace

TEST_CASE("FixedString: the literal outlives the expression that named it") {
    const std::string_view name = Named<"blocks.3.attention.key.bias">::name;
    CHECK(std::string(name) == "blocks.3.attention.key.bias");
    CHECK(name.data() == Named<"blocks.3.attention.key.bias">::name.data());
}

}  // namespace fixed_string_test
