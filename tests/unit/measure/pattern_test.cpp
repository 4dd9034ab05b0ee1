// SPDX-License-Identifier: Apache-2.0
// Patterns of one's own: what is called, checked, counted and said.
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/measure.hpp>
#include <shardkit/mesh/device_mesh.hpp>

namespace pattern_test {

namespace {

namespace sk = shardkit;
using namespace shardkit::measure;
using Engine = sk::threads::Engine;
using Comm = sk::threads::Communicator;

const Repeats quick{.warmup = 1, .calls = 2, .rounds = 3, .checks = 2};
const std::vector<std::size_t> odd{1, 5, 17, 1000};

/// The figure on rank 0 of what `fill` adds, on so many ranks.
template <class Fill>
PatternFigure figure_of(std::size_t ranks, const Fill& fill, sk::threads::LaunchOptions options = {}) {
    PatternFigure figure;
    sk::threads::run(
        sk::DeviceMesh(ranks),
        [&](auto& rank) {
            Pattern<Engine> pattern(rank, "of a test");
            fill(pattern, rank);
            const PatternFigure measured = pattern.measure(quick);
            if (rank.rank() == 0) { figure = measured; }
        },
        {}, options);
    return figure;
}

/// An all-gather whose last element is wrong on rank 1, or, where it derives from another verb, that one.
template <class V>
struct Spoiled : V {
    static void call(const auto& c) {
        V::call(c);
        if (c.comm.rank() == 1) { c.received.back() = {}; }
    }
};
/// A verb that is not called.
template <class V>
struct Idle : V {
    static void call(const auto& /*c*/) {}
    static void call_in_place(const auto& /*c*/) {}
};

/// An all-reduce in two levels, with communicators of its own.
struct TwoLevels : AllReduce {
    Comm inner;
    Comm outer;
    int* called;

    TwoLevels(Comm within, Comm between, int* count) : inner(within), outer(between), called(count) {}
    void call(const auto& c) const {
        ++*called;
        sk::all_reduce(inner, c.shape.op, c.sent, c.received, c.stream);
        sk::all_reduce_in_place(outer, c.shape.op, c.received, c.stream);
    }
};

std::string refusal(const auto& fill) {
    try {
        figure_of(2, fill);
    } catch (const std::invalid_argument& error) { return error.what(); }
    return "";
}

}  // namespace

TEST_CASE("every verb over a list of odd sizes has right data, in both placements, with and without streams") {
    for (const auto overlap : {sk::threads::Overlap::none, sk::threads::Overlap::threads}) {
        for (std::size_t ranks = 1; ranks <= 3; ++ranks) {
            CAPTURE(ranks);
            const PatternFigure figure = figure_of(
                ranks,
                [](auto& pattern, auto& rank) {
                    const auto& world = rank.world();
                    pattern.add(AllGather{}, world, odd).add(ReduceScatter{}, world, odd);
                    pattern.add(AllReduce{}, world, odd, {.op = sk::ReduceOp::max}).add(AllToAll{}, world, odd);
                    pattern.template add<sk::bf16>(AllReduce{}, world, odd).add(SendReceive{}, world, odd);
                    const VerbOptions in_place{.placement = Placement::in_place, .root = world.size() - 1};
                    pattern.add(AllGather{}, world, odd, in_place).add(ReduceScatter{}, world, odd, in_place);
                    pattern.add(AllReduce{}, world, 3, in_place).add(Broadcast{}, world, odd, in_place);
                    pattern.compute([] {});
                },
                {.overlap = overlap});
            CHECK(figure.together.wrong == 0);
            CHECK(figure.together.calls == 2);
            CHECK(figure.together.time.min > 0);
            CHECK(figure.communication.min > 0);
            CHECK(figure.computation.has_value());
        }
    }
}

TEST_CASE("one spoiled element of a list is one wrong value in each check, a verb that is not called many") {
    const auto wrong = [](auto verb) {
        return figure_of(2, [&](auto& pattern, auto& rank) { pattern.add(verb, rank.world(), odd); }).together.wrong;
    };
    CHECK(wrong(Spoiled<AllGather>{}) == 2 * odd.size());
    CHECK(wrong(Spoiled<AllReduce>{}) == 2 * odd.size());
    CHECK(wrong(Idle<ReduceScatter>{}) >= 2 * 511);
    CHECK(wrong(AllGather{}) == 0);
}

TEST_CASE("a list has other values in each tensor") {
    Shape first{{0, 1}, 0, 100};
    Shape second = first;
    second.first = 100;
    int alike = 0;
    for (std::size_t i = 0; i < 100; ++i) { alike += first.value(1, i) == second.value(1, i) ? 1 : 0; }
    CHECK(alike < 10);
    CHECK(first.value(1, 100) == second.value(1, 0));
}

TEST_CASE("sizes are rounded up to whole pieces, and every verb counts with its own factor") {
    const PatternFigure figure = figure_of(3, [](auto& pattern, auto& rank) {
        pattern.add(AllGather{}, rank.world(), std::vector<std::size_t>{5, 7});    // 6 and 9 elements
        pattern.template add<double>(AllReduce{}, rank.world(), std::size_t{10});  // 80 bytes
    });
    CHECK(figure.bytes == 15 * 4 + 80);
    CHECK(figure.bus_bytes == doctest::Approx(60 * 2.0 / 3 + 80 * 4.0 / 3));
    REQUIRE(figure.together.copy.has_value());
    CHECK(figure.together.copy->bytes == 60 + 80);
    CHECK(figure.bus_bandwidth() == doctest::Approx(figure.bus_bytes / figure.communication.median));
    CHECK_FALSE(figure.hidden().has_value());
}

TEST_CASE("what is hidden is what communication and computation together save, as a part of the communication") {
    PatternFigure figure;
    figure.communication.median = 2;
    figure.computation = Summary{3, 3, 3, 3};
    const auto hidden = [&](double together) {
        figure.together.time.median = together;
        return *figure.hidden();
    };
    CHECK(hidden(3) == doctest::Approx(1));
    CHECK(hidden(5) == doctest::Approx(0));
    CHECK(hidden(4) == doctest::Approx(0.5));
    CHECK(hidden(6) == doctest::Approx(-0.5));
}

TEST_CASE("a verb of one's own is called in place of the one that it derives from, and checked as that one") {
    int called = 0;
    sk::threads::run(sk::DeviceMesh<2, 2>{}, [&](auto& rank) {
        int mine = 0;
        Pattern<Engine> pattern(rank, "two levels");
        pattern.add(
            TwoLevels(rank.template sub_mesh<sk::Axes<sk::Tp>>(), rank.template sub_mesh<sk::Axes<sk::Dp>>(), &mine),
            rank.world(), odd);
        const PatternFigure figure = pattern.measure(quick);
        CHECK(figure.together.wrong == 0);
        CHECK(figure.bus_bytes == doctest::Approx(static_cast<double>(figure.bytes) * 1.5));
        if (rank.rank() == 0) { called = mine; }
    });
    // Two checks and a warm-up, and in each of three rounds one call and two that are timed, of each tensor.
    CHECK(called == static_cast<int>(odd.size() * (2 + 1 + 3 * 3)));
}

TEST_CASE("things take turns, each with a call that is not timed before those that are") {
    sk::self::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        sk::Context<sk::self::Engine>& context = rank;
        std::vector<std::pair<char, std::size_t>> made;
        const std::vector<Turn> turns{[&](std::size_t n) { made.emplace_back('a', n); },
                                      [&](std::size_t n) { made.emplace_back('b', n); }};
        const auto times = time_in_turns(context, 2, 7, std::span(turns));
        CHECK(times.size() == 2);
        using Made = std::vector<std::pair<char, std::size_t>>;
        CHECK(made == Made{{'a', 1}, {'a', 7}, {'b', 1}, {'b', 7}, {'a', 1}, {'a', 7}, {'b', 1}, {'b', 7}});
    });
}

TEST_CASE("what cannot be measured is refused with the user's line") {
    const auto with = [](auto verb, VerbOptions options, std::size_t size) {
        return refusal([=](auto& pattern, auto& rank) { pattern.add(verb, rank.world(), size, options); });
    };
    const std::string placement = "Pattern: the verb has no such placement; see measure/verbs.hpp";
    CHECK(with(Broadcast{}, {}, 3).find(placement) != std::string::npos);
    CHECK(with(AllToAll{}, {.placement = Placement::in_place}, 3).find(placement) != std::string::npos);
    CHECK(with(AllGather{}, {}, 0).find("a tensor of 0 elements") != std::string::npos);
    CHECK(with(Broadcast{}, {.placement = Placement::in_place, .root = 2}, 3).find("the root is no rank") !=
          std::string::npos);
    const std::string none = refusal([](auto&, auto&) {});
    CHECK(none.find("no verb; expected add() before measure()") != std::string::npos);
    CHECK(none.find("pattern_test.cpp") != std::string::npos);
}

}  // namespace pattern_test
