// SPDX-License-Identifier: Apache-2.0
#include <shardkit/sharded/window.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>

#include "unit/sharded/custom_policies.hpp"
#include "unit/sharded/linear_layer.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace window_test {

using toy::Bias;
using toy::Flat;
using toy::Weight;

namespace {

/// As a caller that the compiler cannot see through: clang refuses a window's use after its end otherwise.
template <class Window>
double first_bias(const Window* window) {
    return static_cast<double>((*window)[Bias{}][0]);
}

template <class Window>
bool holds_the_numbers(const Window& window) {
    const auto weight = window[Weight{}];
    const auto bias = window[Bias{}];
    bool right = weight.size() == 35 && bias.size() == 7 && weight.extent(0) == 7 && weight.extent(1) == 5;
    for (std::size_t i = 0; i < weight.size(); ++i) { right = right && weight[i] == static_cast<double>(i); }
    for (std::size_t i = 0; i < bias.size(); ++i) { right = right && bias[i] == static_cast<double>(100 + i); }
    return right;
}

}  // namespace

TEST_CASE("a second window of a group shares the gathered copy, which lives until the last one ends") {
    sk::threads::run(Flat{3}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::FullShard>(rank);
        rank.traffic().clear();
        auto outer = layer.unshard();
        auto inner = layer.unshard();
        CHECK(outer[Weight{}].data() == inner[Weight{}].data());
        CHECK(toy::calls(rank, sk::Verb::all_gather) == 1);
        layer.reshard(std::move(outer));
        CHECK(holds_the_numbers(inner));
        layer.reshard(std::move(inner));
        const auto again = layer.unshard();
        CHECK(toy::calls(rank, sk::Verb::all_gather) == 2);
        CHECK(holds_the_numbers(again));
    });
}

TEST_CASE("windows gather only what is stale") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        const auto gathers_of_two_windows = [&](auto& layer) {
            rank.traffic().clear();
            for (int i = 0; i < 2; ++i) { CHECK(layer.unshard().open()); }
            return toy::calls(rank, sk::Verb::all_gather);
        };
        const auto step = [](auto& layer) {
            sk::Model model{layer};
            sk::SGD optimizer{model, {.learning_rate = 0}};
            sk::Accumulation accumulation{model};
            toy::add(accumulation, layer, 1);
            optimizer.step(sk::reduce(std::move(accumulation), sk::sum));
        };
        auto replicated = toy::linear_layer<sk::NoShard>(rank, "a");
        auto stage1 = toy::linear_layer<sk::ShardOptimizer>(rank, "b");
        auto kept = toy::linear_layer<toy::KeepUntilUpdate>(rank, "c");
        auto freed = toy::linear_layer<sk::FullShard>(rank, "d");
        CHECK(gathers_of_two_windows(replicated) == 0);
        CHECK(gathers_of_two_windows(stage1) == 0);  // initialize wrote the whole copy
        CHECK(gathers_of_two_windows(kept) == 1);
        CHECK(gathers_of_two_windows(kept) == 0);
        CHECK(gathers_of_two_windows(freed) == 2);
        step(replicated);
        step(stage1);
        step(kept);
        step(freed);
        CHECK(gathers_of_two_windows(replicated) == 0);
        CHECK(gathers_of_two_windows(stage1) == 1);
        CHECK(gathers_of_two_windows(kept) == 1);
        CHECK(gathers_of_two_windows(freed) == 2);
        number(stage1);
        CHECK(gathers_of_two_windows(stage1) == 0);
        number(kept);
        CHECK(gathers_of_two_windows(kept) == 1);
        CHECK(holds_the_numbers(kept.unshard()));
        CHECK(holds_the_numbers(stage1.unshard()));
    });
}

TEST_CASE("as many groups of the same shapes are open at once as in_flight says") {
    const auto train = [](std::size_t in_flight) {
        sk::threads::run(Flat{2},
                         [&](auto& rank) {
                             std::vector<decltype(toy::linear_layer<sk::FullShard>(rank))> layers;
                             for (const char* path : {"a", "b", "c", "d"}) {
                                 layers.push_back(toy::linear_layer<sk::FullShard>(rank, path));
                             }
                             std::vector<decltype(layers[0].unshard())> open;
                             for (std::size_t i = 0; i < in_flight; ++i) { open.push_back(layers[i].unshard()); }
                             CHECK_USAGE_ERROR(layers[3].unshard(),
                                               std::string("'d': no gather buffer is free, ") +
                                                   std::to_string(in_flight) + " are held by " +
                                                   (in_flight == 1 ? "'a'" : "'a', 'b'") +
                                                   "; end a window first or raise RankOptions::in_flight");
                             for (const auto& window : open) { CHECK(holds_the_numbers(window)); }
                             open.pop_back();
                             CHECK(holds_the_numbers(layers[3].unshard()));
                         },
                         {.in_flight = in_flight});
    };
    SUBCASE("1") { train(1); }
    SUBCASE("2") { train(2); }
}

TEST_CASE("which windows fit together does not depend on the number of ranks") {
    using One = sk::TensorList<float>;
    for (const std::size_t ranks : {1U, 2U, 5U}) {
        CAPTURE(ranks);
        sk::threads::run(Flat{ranks}, [](auto& rank) {
            using Group = sk::Sharded<One, sk::FullShard>;
            // Padded to one size on 5 ranks, to two or three on fewer.
            Group a{rank, "a", {{"w", {100}}}};
            Group b{rank, "b", {{"w", {120}}}};
            Group c{rank, "c", {{"w", {140}}}};
            const auto first = a.unshard();
            const auto second = b.unshard();
            CHECK_NOTHROW(static_cast<void>(c.unshard()));
            // Groups of the same shapes take turns on any number of ranks.
            Group like_a{rank, "like a", {{"v", {100}}}};
            Group also_like_a{rank, "also like a", {{"u", {100}}}};
            const auto third = like_a.unshard();
            CHECK_USAGE_ERROR(
                also_like_a.unshard(),
                "'also like a': no gather buffer is free, 2 are held by 'a', 'like a'; end a window first "
                "or raise RankOptions::in_flight");
        });
    }
}

TEST_CASE("addresses repeat: group k uses slot k mod in_flight, in every round") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        std::vector<decltype(toy::linear_layer<sk::FullShard>(rank))> layers;
        for (const char* path : {"a", "b", "c"}) { layers.push_back(toy::linear_layer<sk::FullShard>(rank, path)); }
        std::vector<const double*> first;
        for (int round = 0; round < 3; ++round) {
            std::vector<const double*> seen;
            for (auto& layer : layers) {
                auto window = layer.unshard();
                seen.push_back(window[Weight{}].data());
                layer.reshard(std::move(window));
            }
            if (round == 0) { first = seen; }
            CHECK(seen == first);
        }
        CHECK(first[0] == first[2]);
        CHECK(first[0] != first[1]);
    });
}

TEST_CASE("a window that has ended is refused, and so is another group's") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        auto a = toy::linear_layer<sk::FullShard>(rank, "a");
        auto b = toy::linear_layer<sk::FullShard>(rank, "b");
        const sk::SourceLocation opened{__FILE__, __LINE__ + 1};
        auto window = a.unshard();
        const auto* const unseen = &window;
        CHECK(first_bias(unseen) == 100);
        CHECK_USAGE_ERROR(b.reshard(std::move(window)), "'b': reshard of a window that belongs to another group");
        CHECK(first_bias(unseen) == 100);
        a.reshard(std::move(*const_cast<std::remove_const_t<std::remove_pointer_t<decltype(unseen)>>*>(unseen)));
        CHECK_USAGE_ERROR_FROM(opened, first_bias(unseen), "window used after its end; it was opened here");
        CHECK_USAGE_ERROR(a.reshard(std::move(window)), "'a': reshard of a window that has already ended");
    });
}

TEST_CASE("leaving scope ends a window, on every way out") {
    sk::threads::run(Flat{2},
                     [](auto& rank) {
                         auto a = toy::linear_layer<sk::FullShard>(rank, "a");
                         auto b = toy::linear_layer<sk::FullShard>(rank, "b");
                         try {
                             const auto window = a.unshard();
                             throw 1;
                         } catch (int) {}
                         CHECK(holds_the_numbers(b.unshard()));  // the only slot is free again
                     },
                     {.in_flight = 1});
}

TEST_CASE("begin_unshard gathers; wait gives the window, dropping it gives the buffer back") {
    sk::threads::run(Flat{2},
                     [](auto& rank) {
                         auto a = toy::linear_layer<sk::FullShard>(rank, "a");
                         auto b = toy::linear_layer<sk::FullShard>(rank, "b");
                         rank.traffic().clear();
                         static_cast<void>(a.begin_unshard());
                         CHECK(toy::calls(rank, sk::Verb::all_gather) == 1);
                         const sk::SourceLocation opened{__FILE__, __LINE__ + 1};
                         auto pending = b.begin_unshard();
                         auto* const again = &pending;
                         CHECK(holds_the_numbers(std::move(pending).wait()));
                         CHECK_USAGE_ERROR_FROM(opened, static_cast<void>(std::move(*again).wait()),
                                                "window waited for twice; it was opened here");
                         auto first = a.begin_unshard();
                         first = a.begin_unshard();  // the same group: shares the copy, and the one it replaces ends
                         const auto window = std::move(first).wait();
                         CHECK(holds_the_numbers(window));
                         CHECK(toy::calls(rank, sk::Verb::all_gather) == 3);
                     },
                     {.in_flight = 1});
}

TEST_CASE("assigning a window ends the one that was held") {
    sk::threads::run(Flat{2},
                     [](auto& rank) {
                         auto a = toy::linear_layer<sk::FullShard>(rank, "a");
                         auto b = toy::linear_layer<sk::FullShard>(rank, "b");
                         auto c = toy::linear_layer<sk::FullShard>(rank, "c");
                         auto held = a.unshard();
                         auto next = b.unshard();
                         held = std::move(next);
                         CHECK(holds_the_numbers(held));
                         CHECK(holds_the_numbers(c.unshard()));  // a's slot is free although `next` still exists
                         auto& self = held;
                         held = std::move(self);
                         CHECK(holds_the_numbers(*&held));
                     },
                     {.in_flight = 2});
}

TEST_CASE("windows and handles survive a move of their Sharded") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        std::vector<decltype(toy::linear_layer<sk::FullShard>(rank))> layers;
        layers.push_back(toy::linear_layer<sk::FullShard>(rank, "a"));
        auto window = layers[0].unshard();
        const auto* const before = layers.data();
        layers.reserve(layers.capacity() + 1);
        CHECK(layers.data() != before);
        CHECK(holds_the_numbers(window));
        auto moved = std::move(layers[0]);
        CHECK(holds_the_numbers(window));
        moved.reshard(std::move(window));
        sk::Model model{moved};
        sk::Accumulation accumulation{model};
        auto handle = accumulation.gradients(moved);
        toy::fill(handle, 1);
        auto again = std::move(handle);
        accumulation.add(std::move(again));
        auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        std::vector<double> bias(7);
        reduced.read_full(moved, Bias{}, std::span(bias));
        CHECK(bias == std::vector<double>{1, 2, 3, 4, 5, 6, 7});
    });
}

TEST_CASE("nothing updates or loads parameters under an open window") {
    const auto check = [](const sk::DynamicPolicy& policy) {
        sk::threads::run(Flat{2}, [&](auto& rank) {
            auto layer = toy::linear_layer(rank, "layer", policy);
            sk::Model model{layer};
            sk::SGD optimizer{model, {.learning_rate = 1}};
            const std::vector<double> values(7, 3.0);
            const char* const message =
                "'layer': optimizer step or load while 2 window(s) are open; reshard them first";
            {
                auto one = layer.unshard();
                auto two = layer.unshard();
                sk::Accumulation accumulation{model};
                toy::add(accumulation, layer, 1);
                auto reduced = sk::reduce(std::move(accumulation), sk::sum);
                CHECK_USAGE_ERROR(optimizer.step(std::move(reduced)), message);
                CHECK_USAGE_ERROR(layer.load(Bias{}, std::span<const double>(values)), message);
                CHECK_USAGE_ERROR(layer.initialize([](auto, auto, std::uint64_t) { return 0.0; }), message);
                CHECK(holds_the_numbers(one));
            }
            CHECK(optimizer.steps(layer) == 0);
            // The step that was refused is over; another one works.
            sk::Accumulation accumulation{model};
            toy::add(accumulation, layer, 1);
            optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
            const auto window = layer.unshard();
            for (std::size_t i = 0; i < 7; ++i) {
                CHECK(window[Bias{}][i] == 100 + static_cast<double>(i) - static_cast<double>(i + 1));
            }
        });
    };
    SUBCASE("no_shard") { check(sk::DynamicPolicy(sk::NoShard{})); }
    SUBCASE("full_shard") { check(sk::DynamicPolicy(sk::FullShard{})); }
}

}  // namespace window_test
