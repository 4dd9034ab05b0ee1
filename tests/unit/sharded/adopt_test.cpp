// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/verbs/barrier.hpp>

#include "unit/sharded/linear_layer.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace adopt_test {

using toy::Bias;
using toy::Flat;
using toy::Weight;

namespace {

template <class T>
std::vector<T> counting(std::size_t n) {
    std::vector<T> values;
    for (std::size_t i = 0; i < n; ++i) { values.push_back(static_cast<T>(static_cast<float>(i))); }
    return values;
}

}  // namespace

TEST_CASE("NoShard works on the user's parameters and gradients in place, also misaligned") {
    for (const std::size_t world : {1U, 2U, 3U}) {
        for (const std::size_t shift : {0U, 1U}) {
            CAPTURE(world);
            CAPTURE(shift);
            sk::threads::run(Flat{world}, [&](auto& rank) {
                using Layer = toy::LinearLayer<sk::NoShard, sk::Precision<float>>;
                // 35 weights and 7 biases without padding, between two elements that nobody may touch.
                std::vector<float> parameters(44, -1);
                std::vector<float> gradients(44, -2);
                const std::span<float> p = std::span(parameters).subspan(shift, 42);
                const std::span<float> g = std::span(gradients).subspan(shift, 42);
                for (std::size_t i = 0; i < 42; ++i) { p[i] = static_cast<float>(i); }
                auto layer = Layer::adopt(rank, "mine", toy::linear_shapes(), {p, g});
                CHECK(layer.layout().buffer_numel() == 42);
                CHECK(gradients == std::vector<float>(44, -2));  // untouched so far
                sk::Model model{layer};
                sk::SGD optimizer{model, {.learning_rate = 0.5}};
                for (int step = 0; step < 2; ++step) {
                    auto window = layer.unshard();
                    CHECK(window[Weight{}].data() == p.data());
                    CHECK(window[Bias{}].data() == p.data() + 35);
                    CHECK(window[Bias{}][6] ==
                          41.0F - static_cast<float>(7 * step * (static_cast<int>(world) + 1)) / 4);
                    layer.reshard(std::move(window));
                    sk::Accumulation accumulation{model};
                    auto handle = accumulation.gradients(layer);
                    CHECK(handle[Weight{}].data() == g.data());
                    CHECK(handle[Bias{}].data() == g.data() + 35);
                    toy::fill(handle, static_cast<double>(rank.rank() + 1));
                    accumulation.add(std::move(handle));
                    optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
                }
                // Each step takes half of (world + 1) / 2 times the element's number in its tensor.
                for (std::size_t i = 0; i < 42; ++i) {
                    const float number = static_cast<float>(i < 35 ? i + 1 : i - 34);
                    CHECK(p[i] == static_cast<float>(i) - number * static_cast<float>(world + 1) / 2);
                    CHECK(g[i] == number * static_cast<float>(world * (world + 1)) / 2);  // the reduced sums
                }
                for (const std::size_t outside : {shift == 0 ? 42U : 0U, 43U}) {
                    CHECK(parameters[outside] == -1);
                    CHECK(gradients[outside] == -2);
                }
                // Written by the user between steps: it is the user's memory.
                p[0] = 77;
                const auto window = layer.unshard();
                CHECK(window[Weight{}][0] == 77);
            });
        }
    }
}

TEST_CASE("adopting parameters alone: the library keeps the gradients") {
    sk::self::run(Flat{1}, [](auto& rank) {
        using Layer = toy::LinearLayer<sk::NoShard, sk::Precision<float>>;
        std::vector<float> parameters = counting<float>(42);
        auto layer = Layer::adopt(rank, "mine", toy::linear_shapes(), {parameters, {}});
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 1}};
        sk::Accumulation accumulation{model};
        toy::add(accumulation, layer, 1);
        optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
        CHECK(parameters[34] == 34 - 35);
        CHECK(parameters[41] == 41 - 7);
    });
}

TEST_CASE("adopted 16-bit parameters get a master with their values") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        using Layer = toy::LinearLayer<sk::NoShard, sk::Precision<sk::bf16>>;
        std::vector<sk::bf16> parameters = counting<sk::bf16>(42);
        std::vector<sk::bf16> gradients(42);
        auto layer = Layer::adopt(rank, "mine", toy::linear_shapes(), {parameters, gradients});
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 0.125}};
        for (int step = 0; step < 4; ++step) {
            sk::Accumulation accumulation{model};
            toy::add(accumulation, layer, 1);
            optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
        }
        for (std::size_t i = 0; i < 42; ++i) {
            const double number = static_cast<double>(i < 35 ? i + 1 : i - 34);
            CHECK(static_cast<float>(parameters[i]) == static_cast<float>(static_cast<double>(i) - number / 2));
        }
    });
}

TEST_CASE("the library's aligned layout can be adopted as well") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        using Layer = toy::LinearLayer<sk::NoShard>;
        std::vector<double> parameters(64);  // fp64: weight at 0, bias at 48, two virtual shards of 32
        parameters[48] = 5;
        auto layer = Layer::adopt(rank, "mine", toy::linear_shapes(), {parameters, {}}, {});
        const auto window = layer.unshard();
        CHECK(window[Bias{}].data() == parameters.data() + 48);
        CHECK(window[Bias{}][0] == 5);
    });
}

TEST_CASE("adopted memory of another size is refused with both sizes") {
    sk::self::run(Flat{1}, [](auto& rank) {
        using Layer = toy::LinearLayer<sk::NoShard, sk::Precision<float>>;
        std::vector<float> right(42);
        std::vector<float> wrong(43);
        const auto shapes = toy::linear_shapes();
        CHECK_THROWS_WITH_AS(Layer::adopt(rank, "mine", shapes, {wrong, right}),
                             doctest::Contains("'mine': adopted parameters hold 43 elements, expected 42"),
                             std::invalid_argument);
        CHECK_THROWS_WITH_AS(Layer::adopt(rank, "mine", shapes, {right, std::span(right).first(41)}),
                             doctest::Contains("'mine': adopted gradients hold 41 elements, expected 42"),
                             std::invalid_argument);
        CHECK_THROWS_WITH_AS(Layer::adopt(rank, "mine", shapes, {{}, right}),
                             doctest::Contains("'mine': adopted parameters hold 0 elements, expected 42"),
                             std::invalid_argument);
        CHECK_THROWS_WITH_AS(Layer::adopt(rank, "mine", shapes, {{}, {}}),
                             doctest::Contains("'mine': adopted parameters hold 0 elements, expected 42"),
                             std::invalid_argument);
    });
    // Virtual shards over dp x cp make the aligned buffer longer than shards over dp would.
    sk::threads::run(sk::DeviceMesh<1, 1, 4>{}, [](auto& rank) {
        using Policy = sk::ShardOver<sk::NoShard, sk::Axes<sk::DpShard, sk::Cp>>;
        using Layer = toy::LinearLayer<Policy>;
        std::vector<double> fits(64);
        std::vector<double> fits_one_shard(64 - 9);
        CHECK_NOTHROW(Layer::adopt(rank, "mine", toy::linear_shapes(), {fits, {}}, {}));
        CHECK_THROWS_WITH_AS(Layer::adopt(rank, "mine", toy::linear_shapes(), {fits_one_shard, {}}, {}),
                             doctest::Contains("expected 64"), std::invalid_argument);
    });
}

TEST_CASE("Rank: a communicator is adopted before the first group, and behind it refused with its path") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        using Layer = toy::LinearLayer<sk::FullShard, sk::Precision<float>>;
        rank.adopt(sk::Axes<sk::Dp>{}, rank.world());
        { const Layer ended(rank, "first", toy::linear_shapes()); }
        const Layer second(rank, "second", toy::linear_shapes());
        CHECK_USAGE_ERROR(rank.adopt(sk::Axes<sk::Dp>{}, rank.world()),
                          "adopt over dp: 'first' was made before, and groups that are split alike share its "
                          "communicators; expected adopt before the first Sharded");
    });
}

TEST_CASE("memory that another group has adopted is refused, and both groups are named, until that one ends") {
    sk::threads::run(Flat{1}, [](auto& rank) {
        using Layer = toy::LinearLayer<sk::NoShard, sk::Precision<float>>;
        const auto shapes = toy::linear_shapes();
        std::vector<float> memory(4 * 42, 1);
        const auto part = [&](std::size_t first) { return std::span(memory).subspan(first, 42); };
        const auto refused = [&](std::span<float> parameters, std::span<float> gradients, const char* text) {
            CAPTURE(text);
            CHECK_THROWS_WITH_AS(Layer::adopt(rank, "b", shapes, {parameters, gradients}), doctest::Contains(text),
                                 std::invalid_argument);
        };
        {
            auto a = Layer::adopt(rank, "a", shapes, {part(0), part(42)});
            refused(part(0), {},
                    "'b': the adopted parameters lie in the memory of the parameters of 'a', adopted at ");
            refused(part(41), {}, "'b': the adopted parameters lie in the memory of the parameters of 'a'");
            refused(part(84), part(100), "'b': the adopted gradients lie in the memory of the parameters of 'b'");
            refused(part(84), part(42), "'b': the adopted gradients lie in the memory of the gradients of 'a'");
            auto moved = std::move(a);
            refused(part(0), {}, "'a'");
            // What was refused holds nothing.
            auto b = Layer::adopt(rank, "b", shapes, {part(84), {}});
        }
        auto again = Layer::adopt(rank, "a", shapes, {part(41), part(83)});
    });
    // Ranks that are threads of one process have memory of their own each.
    std::vector<float> memory(42, 1);
    std::string told;
    CHECK_THROWS(sk::threads::run(Flat{2}, [&](auto& rank) {
        using Layer = toy::LinearLayer<sk::NoShard, sk::Precision<float>>;
        try {
            const auto layer = Layer::adopt(rank, "a", toy::linear_shapes(), {memory, {}});
            sk::barrier(rank.world(), {});
        } catch (const std::invalid_argument& error) {  // whichever of them comes later
            told = error.what();
            throw;
        }
    }));
    CHECK(told.find("'a': the adopted parameters lie in the memory of the parameters of 'a'") == 0);
    CHECK(told.find("expected memory of its own for each group and rank") != std::string::npos);
}

TEST_CASE("a layout without padding cannot be sharded") {
    sk::self::run(Flat{1}, [](auto& rank) {
        using Layer = toy::LinearLayer<sk::FullShard>;
        CHECK_THROWS_WITH_AS(
            Layer(rank, "mine", toy::linear_shapes(), {{}, sk::Packing::exact, {}}),
            doctest::Contains("'mine': Packing::exact given, but full_shard shards; expected aligned or packed"),
            std::invalid_argument);
    });
}

namespace {

/// Three steps of AdamW on memory of the user's, and on memory of the library's: the same bits in the same layout,
/// and no copy of the user's.
template <class Policy, class T>
void check_adopted(std::size_t world, bool gradients_too) {
    CAPTURE(Policy::name);
    CAPTURE(world);
    sk::threads::run(Flat{world}, [&](auto& rank) {
        using Layer = toy::LinearLayer<Policy, sk::Precision<T>>;
        const std::size_t numel = Layer::buffer_numel(rank, "mine", toy::linear_shapes());
        CHECK(numel >= 42);
        CHECK(numel % world == 0);
        std::vector<T> memory(numel + 1, T(-1.0F));
        std::vector<T> gradients(gradients_too ? numel + 1 : 0, T(-2.0F));
        const auto parameters = std::span(memory).first(numel);
        auto mine = Layer::adopt(rank, "mine", toy::linear_shapes(),
                                 {parameters, std::span(gradients).first(gradients_too ? numel : 0)});
        Layer own(rank, "own", toy::linear_shapes(), Layer::adopting());
        CHECK(mine.layout().buffer_numel() == numel);
        toy::number(mine);
        toy::number(own);
        const auto train = [&](auto& layer) {
            sk::Model model{layer};
            sk::AdamW optimizer{model, {.learning_rate = 0.125}};
            for (int step = 0; step < 3; ++step) {
                sk::Accumulation accumulation{model, 2};
                for (int microbatch = 0; microbatch < 2; ++microbatch) {
                    toy::add(accumulation, layer, 0.25 * static_cast<double>(rank.rank() + 1));
                }
                auto reduced = sk::reduce(std::move(accumulation), sk::mean);
                const auto norm = sk::global_norm(reduced);
                optimizer.step(std::move(reduced), sk::clip(norm, 1));
            }
        };
        train(mine);
        train(own);
        const auto in_mine = mine.unshard();
        const auto in_own = own.unshard();
        CHECK(in_mine[Weight{}].data() == memory.data());
        CHECK(in_mine[Bias{}].data() == memory.data() + 35);
        for (std::size_t i = 0; i < 42; ++i) {
            CHECK(static_cast<float>(memory[i]) == static_cast<float>(in_own[Weight{}].data()[i]));
        }
        CHECK(static_cast<float>(memory[34]) < 34);
        CHECK(static_cast<float>(memory[numel]) == -1);  // behind the end
        if (gradients_too) {
            CHECK(static_cast<float>(gradients[numel]) == -2);
            CHECK(static_cast<float>(gradients[0]) != -2);  // worked in
        }
    });
}

}  // namespace

TEST_CASE("a sharded optimizer works on the user's parameters and gradients in place") {
    for (const std::size_t world : {1U, 2U, 3U}) {
        check_adopted<sk::ShardOptimizer, float>(world, true);
        check_adopted<sk::ShardOptimizer, sk::bf16>(world, true);
        check_adopted<sk::ShardOptimizer, float>(world, false);
        check_adopted<sk::ShardGradOp, float>(world, false);
        check_adopted<sk::NoShard, float>(world, true);
    }
}

TEST_CASE("adopting what a sharding policy cannot is refused with what it expects") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        using Layer = toy::LinearLayer<sk::ShardGradOp, sk::Precision<float>>;
        const auto shapes = toy::linear_shapes();
        std::vector<float> memory(Layer::buffer_numel(rank, "mine", shapes));
        CHECK(memory.size() == 64);  // 42, cut into two shards of a multiple of 32
        std::vector<float> gradients(memory.size());
        CHECK_THROWS_WITH_AS(Layer::adopt(rank, "mine", shapes, {memory, gradients}),
                             doctest::Contains("'mine': adopted gradients with policy shard_grad_op, expected none"),
                             std::invalid_argument);
        CHECK_THROWS_WITH_AS(Layer::adopt(rank, "mine", shapes, {std::span(memory).first(42), {}}),
                             doctest::Contains("'mine': adopted parameters hold 42 elements, expected 64"),
                             std::invalid_argument);
    });
}

}  // namespace adopt_test
