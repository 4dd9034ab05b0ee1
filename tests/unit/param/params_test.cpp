// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <ostream>
#include <string_view>
#include <tuple>
#include <type_traits>

#include <doctest/doctest.h>

#include <shardkit/param/params.hpp>

namespace params_test {

namespace {

using namespace shardkit;
using namespace std::string_view_literals;

struct A : Param<"a", float, 3, 4> {};
struct B : Param<"b", float, dynamic> {};
struct C : Param<"c", float> {};
struct TiedB : Alias<"tied.b", B> {};
struct TiedA : Alias<"tied.a", A> {};
struct Outside : Param<"outside", float, 2> {};
struct TiedOutside : Alias<"tied.outside", Outside> {};
struct Half : Param<"half", bf16, 2> {};

using Group = Params<A, B, C>;
static_assert(Group::count == 3 && std::is_same_v<Group::Element, float>);
static_assert(std::is_same_v<Group::Stored, std::tuple<A, B, C>>);
static_assert(Group::names == std::array<std::string_view, 3>{"a", "b", "c"});
static_assert(std::is_same_v<Group::At<1>, B>);
static_assert(Group::index<A> == 0 && Group::index<B> == 1 && Group::index<C> == 2);
static_assert(Group::index<Outside> == Group::count, "count when it is not in the group");
static_assert(Group::contains<C> && !Group::contains<Outside> && !Group::contains<TiedB>);

// Aliases have no storage and may stand anywhere, also before what they name.
using Tied = Params<TiedB, A, B, TiedA, C>;
static_assert(Tied::count == 3 && std::is_same_v<Tied::Stored, Group::Stored> && Tied::names == Group::names);
static_assert(Tied::index<TiedB> == Tied::index<B> && Tied::index<TiedA> == Tied::index<A>);
static_assert(Tied::contains<TiedA> && Tied::contains<TiedB> && Tied::contains<B>);
static_assert(!Tied::contains<TiedOutside> && Tied::index<TiedOutside> == Tied::count,
              "an alias that the group does not list is not in it");
static_assert(std::is_same_v<Params<Half>::Element, bf16> && Params<Half>::count == 1);

// A single Param is a group of one; a group is itself.
static_assert(std::is_same_v<GroupOf<A>, Params<A>> && std::is_same_v<GroupOf<Tied>, Tied>);

}  // namespace

TEST_CASE("Params: masks name parameters, aliases stand for their target") {
    CHECK(Group::mask<>().none());
    CHECK(Group::mask<A>().to_ulong() == 0b001);
    CHECK(Group::mask<C, A>().to_ulong() == 0b101);
    CHECK(Group::all().to_ulong() == 0b111);
    CHECK(Group::mask<A, B, C>() == Group::all());
    CHECK(Tied::mask<TiedB>() == Tied::mask<B>());
    CHECK(Tied::mask<TiedA, A>().count() == 1);
    CHECK(Group::mask<B>().size() == 3);
}

}  // namespace params_test
