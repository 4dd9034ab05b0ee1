// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/param/shapes.hpp>

#include "../thrown_message.hpp"

namespace shapes_test {

namespace {

using namespace shardkit;

struct Weight : Param<"weight", float, dynamic, dynamic> {};
struct Bias : Param<"bias", float, dynamic> {};
struct Scale : Param<"scale", float> {};
struct Fixed : Param<"fixed", float, 4, 5> {};
struct Mixed : Param<"mixed", float, 4, dynamic> {};
struct Huge : Param<"huge", float, (std::size_t{1} << 40U), (std::size_t{1} << 40U)> {};
struct Tied : Alias<"tied", Weight> {};

using Linear = Params<Weight, Bias>;
using All = Params<Scale, Weight, Tied, Fixed, Mixed, Bias>;

template <class G, class... S>
concept Shaped = std::is_constructible_v<Shapes<G>, S...>;
static_assert(Shaped<Linear, ShapeOf<Weight>, ShapeOf<Bias>> && !Shaped<Linear, int>);

template <class Of>
constexpr auto numels(const Of& shapes) {
    std::array<std::size_t, Of::count> each{};
    for (std::size_t i = 0; i < Of::count; ++i) { each[i] = shapes[i].numel(); }
    return each;
}
constexpr Shapes<Linear> in_order{shape<Weight>(7, 3), shape<Bias>(7)};
static_assert(in_order[0] == TensorShape{2, {7, 3}} && in_order[1] == TensorShape{1, {7}});
static_assert(numels(in_order) == std::array<std::size_t, 2>{21, 7});
constexpr Shapes<Linear> reversed{shape<Bias>(7), shape<Weight>(7, 3)};
static_assert(reversed[0] == in_order[0] && reversed[1] == in_order[1], "any order");
constexpr Shapes<Params<Fixed, Scale>> all_static{};
static_assert(all_static[0] == TensorShape{2, {4, 5}} && all_static[1] == TensorShape{0, {}});
static_assert(numels(all_static) == std::array<std::size_t, 2>{20, 1});

}  // namespace

TEST_CASE("Shapes: given, static and mixed extents; aliases have none of their own") {
    const Shapes<All> shapes{shape<Bias>(9), shape<Mixed>(4, 6), shape<Weight>(2, 3)};
    CHECK(numels(shapes) == std::array<std::size_t, 5>{1, 6, 20, 24, 9});
    CHECK(shapes[3] == TensorShape{2, {4, 6}});
    // What the type fixes may be repeated.
    const Shapes<All> repeated{shape<Bias>(9), shape<Mixed>(4, 6), shape<Weight>(2, 3), shape<Fixed>(4, 5),
                               shape<Scale>()};
    CHECK(numels(repeated) == numels(shapes));
    CHECK(numels(Shapes<Fixed>{})[0] == 20);  // a single Param, not a group
    CHECK(numels(Shapes<Bias>{shape<Bias>(5'000'000'000)})[0] == 5'000'000'000);
}

TEST_CASE("Shapes: refused, with the group's path, the parameter, what was given and what was expected") {
    const auto message = [](const auto& shapes) {
        const std::string text = thrown_message<std::invalid_argument>([&] {
            shapes.check("blocks.3", {"user.cpp", 7});
        });
        const std::string line = text_at("", {"user.cpp", 7});
        CHECK(text.ends_with(line));
        return text.substr(0, text.size() - line.size());
    };
    CHECK(message(Shapes<Linear>{shape<Weight>(0, 3), shape<Bias>(7)}) ==
          "'blocks.3' parameter 'weight': extent 0 is 0, expected at least 1");
    CHECK(message(Shapes<Linear>{shape<Weight>(7, 0), shape<Bias>(7)}) ==
          "'blocks.3' parameter 'weight': extent 1 is 0, expected at least 1");
    CHECK(message(Shapes<Linear>{shape<Weight>(7, 3), shape<Bias>(0)}) ==
          "'blocks.3' parameter 'bias': extent 0 is 0, expected at least 1");
    CHECK(message(Shapes<Mixed>{shape<Mixed>(5, 2)}) ==
          "'blocks.3' parameter 'mixed': extent 0 is 5, expected 4 as in its type");
    CHECK(message(Shapes<Fixed>{shape<Fixed>(4, 6)}) ==
          "'blocks.3' parameter 'fixed': extent 1 is 6, expected 5 as in its type");
    CHECK(message(Shapes<Mixed>{shape<Mixed>(4, 0)}) ==
          "'blocks.3' parameter 'mixed': extent 1 is 0, expected at least 1");
    constexpr std::size_t half = std::size_t{1} << 32U;
    CHECK(message(Shapes<Weight>{shape<Weight>(half, half)}) ==
          "'blocks.3' parameter 'weight': the element count of shape [4294967296, 4294967296] overflows 64 bits");
    CHECK(message(Shapes<Huge>{}) ==
          "'blocks.3' parameter 'huge': the element count of shape [1099511627776, 1099511627776] overflows 64 bits");
    CHECK(message(Shapes<Weight>{shape<Weight>(-1, 2)}) ==
          "'blocks.3' parameter 'weight': the element count of shape [18446744073709551615, 2] overflows 64 bits");
    CHECK_NOTHROW(Shapes<Weight>{shape<Weight>(-1, 1)}.check("blocks.3"));
}

TEST_CASE("Shapes: extents from arrays and vectors that a program has") {
    const int dims[] = {2, 3};
    const Shapes<Linear> shapes{shape<Weight>(dims), shape<Bias>(std::vector<std::size_t>{9})};
    CHECK(numels(shapes)[0] == 6);
    CHECK(numels(shapes)[1] == 9);
    CHECK_INVALID_ARGUMENT(shape<Bias>(dims), "shape of 'bias': 2 extents, expected 1");
}

}  // namespace shapes_test
