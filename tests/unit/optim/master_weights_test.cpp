// SPDX-License-Identifier: Apache-2.0
// Master weights on or off at run time, and parameters that are rounded stochastically without one.
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/reduce.hpp>

#include "temporary_folder.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

#define CHECK_REFUSED(expression, text) \
    CHECK(has(thrown_message<std::invalid_argument>([&] { static_cast<void>(expression); }), text))

namespace master_weights_test {

namespace {

// Odd sizes, a part of tp that is cut in runs of 3, a frozen one between.
template <class E>
struct Columns : sk::Param<"columns", E, 5, 6>, sk::tp::Split<1> {};
template <class E>
struct Frozen : sk::Param<"frozen", E, 3>, sk::Frozen {};
template <class E>
struct Norm : sk::Param<"norm", E, 41> {};
template <class E>
using Block = sk::Params<Columns<E>, Frozen<E>, Norm<E>>;

template <class E, class Precision = sk::DefaultPrecision<E>>
using Layer = sk::Sharded<Block<E>, sk::DynamicPolicy, Precision>;

/// Steps whose sums over ranks are exact, of gradients that depend on the whole tensor's element alone.
template <class L, class Optimizer>
void step(L& layer, Optimizer& optimizer, int t) {
    sk::Model model{layer};
    sk::Accumulation accumulation{model};
    auto gradients = accumulation.gradients(layer);
    layer.for_each_parameter([&](const auto& place, std::size_t number) {
        const auto view = gradients.view(number);
        using T = std::remove_cvref_t<decltype(view[0])>;
        for (std::size_t i = 0; i < view.size(); ++i) {
            const auto whole = place.part.whole_index(i);
            view[i] =
                T(static_cast<sk::Arithmetic<T>>(static_cast<double>(whole % 5 + 1) * (t % 2 == 0 ? 0.25 : 0.125)));
        }
    });
    accumulation.add(std::move(gradients));
    optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
}
template <class L>
void number(L& layer) {
    layer.initialize([](auto, auto, std::uint64_t i) { return 1 + 0.125 * static_cast<double>(i); });
}
template <class L>
std::vector<float> values(L& layer) {
    std::vector<float> all(74);
    layer.read_full("columns", std::span(all).first(30));
    layer.read_full("frozen", std::span(all).subspan(30, 3));
    layer.read_full("norm", std::span(all).subspan(33));
    return all;
}

struct Run {
    std::size_t dp = 1, tp = 1;
    sk::DynamicPolicy policy{sk::NoShard{}};
};
const std::array runs{
    Run{1, 1, sk::DynamicPolicy(sk::NoShard{})},     Run{3, 1, sk::DynamicPolicy(sk::ShardOptimizer{})},
    Run{2, 1, sk::DynamicPolicy(sk::ShardGradOp{})}, Run{1, 2, sk::DynamicPolicy(sk::NoShard{})},
    Run{3, 2, sk::DynamicPolicy(sk::FullShard{})},   Run{4, 1, sk::DynamicPolicy(sk::HybridShard<2>{})}};

/// The values after four steps with a seed.
template <class E, class Precision = sk::DefaultPrecision<E>>
std::vector<float> trained(const Run& run, std::uint64_t seed, const char* path = "block") {
    std::vector<float> result;
    sk::threads::run(sk::DeviceMesh{run.dp, run.tp}, [&](auto& rank) {
        Layer<E, Precision> layer{
            rank,
            path,
            {},
            {.policy = run.policy, .master = sk::MasterWeights::none, .stochastic_rounding = {{.seed = seed}}}};
        number(layer);
        sk::Model model{layer};
        sk::AdamW optimizer{model, {.learning_rate = 0.001}};
        for (int t = 0; t < 4; ++t) { step(layer, optimizer, t); }
        const auto all = values(layer);
        if (rank.rank() == 0) { result = all; }
    });
    return result;
}

}  // namespace

TEST_CASE(
    "MasterWeights::none: a run-time choice with the bits of a Precision without a master, and the plan's bytes") {
    for (const Run& run : runs) {
        CAPTURE(run.policy.name());
        sk::threads::run(sk::DeviceMesh{run.dp, run.tp}, [&](auto& rank) {
            using E = sk::bf16;
            Layer<E> chosen{rank, "chosen", {}, {.policy = run.policy, .master = sk::MasterWeights::none}};
            Layer<E, sk::Precision<E, E, float, E>> typed{rank, "typed", {}, {run.policy}};
            Layer<E> kept{rank, "kept", {}, {run.policy}};
            const auto train = [](auto& layer) {
                number(layer);
                sk::Model model{layer};
                sk::AdamW optimizer{model, {.learning_rate = 0.01}};
                for (int t = 0; t < 3; ++t) { step(layer, optimizer, t); }
                return values(layer);
            };
            const auto expected = train(typed);
            CHECK(train(chosen) == expected);
            CHECK(train(kept) != expected);

            std::size_t masters = 0;
            for (const auto& shard : chosen.shards()) { masters += shard.kind == "master" ? 1U : 0U; }
            CHECK(masters == 0);
            const std::array described{sk::describe_group(chosen)};
            const std::array said{sk::describe_group<Block<E>, sk::DynamicPolicy>(
                "chosen", {}, rank.grid(), {.policy = run.policy, .master = sk::MasterWeights::none})};
            CHECK(sk::planner::plan_memory(described).master.value == 0);
            CHECK(sk::planner::plan_memory(described) == sk::planner::plan_memory(said));
            CHECK(sk::planner::plan_memory(std::array{sk::describe_group(kept)}).master.value > 0);
        });
    }
}

TEST_CASE_TEMPLATE(
    "stochastic rounding: the same bits on every mesh and under every policy, others with another seed", E, sk::bf16,
    sk::fp16) {
    const auto expected = trained<E>(runs[0], 42);
    for (const Run& run : runs) {
        CAPTURE(run.policy.name());
        CHECK(trained<E>(run, 42) == expected);
    }
    CHECK(trained<E, sk::Precision<E, E, float, E>>(runs[4], 42) == expected);
    CHECK(trained<E>(runs[0], 43) != expected);
    CHECK(trained<E>(runs[0], 42, "another") != expected);
    for (std::size_t i = 30; i < 33; ++i) { CHECK(expected[i] == 1 + 0.125F * static_cast<float>(i - 30)); }
}

TEST_CASE("stochastic rounding: bits are those of philox at (seed, step, element), whatever the engine does") {
    sk::self::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        using E = sk::bf16;
        Layer<E> layer{rank,
                       "block",
                       {},
                       {.policy = sk::DynamicPolicy(sk::NoShard{}),
                        .master = sk::MasterWeights::none,
                        .stochastic_rounding = {{.seed = 7}}}};
        number(layer);
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 0.0009765625}};
        const auto before = values(layer);
        step(layer, optimizer, 0);
        const auto middle = values(layer);
        step(layer, optimizer, 1);
        const auto after = values(layer);
        sk::detail::Fnv seed;
        seed.add(std::uint64_t{7});
        seed.add(std::string_view("block"));
        std::size_t up = 0;
        for (std::size_t i = 0; i < 74; ++i) {
            if (i >= 30 && i < 33) { continue; }
            const std::size_t within = i < 30 ? i : i - 33;
            const auto next = [&](float value, std::uint64_t step, float gradient) {
                const float updated = value - 0.0009765625F * gradient;
                return static_cast<float>(
                    sk::rules::round_stochastically<E>(updated, sk::detail::PackDraws<1>(seed.hash, step, i)[0]));
            };
            const float share = static_cast<float>(within % 5 + 1);
            CHECK(middle[i] == next(before[i], 1, share * 0.25F));
            CHECK(after[i] == next(middle[i], 2, share * 0.125F));
            up += middle[i] < before[i] ? 1U : 0U;
        }
        CHECK(up > 2);  // some moved, most stayed
        CHECK(up < 60);
    });
}

TEST_CASE("stochastic rounding: a thousand updates below a spacing's half move as their sum does, on average") {
    struct Wide : sk::Param<"wide", sk::bf16, 4000> {};
    const auto mean_of = [](auto rounding) {
        double mean = 0;
        sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
            sk::Sharded<Wide, sk::FullShard> layer{
                rank, "wide", {}, {.master = sk::MasterWeights::none, .stochastic_rounding = rounding}};
            layer.initialize([](auto, auto, auto) { return 1.0; });
            sk::Model model{layer};
            sk::SGD optimizer{model, {.learning_rate = 1}};
            for (int t = 0; t < 100; ++t) {
                sk::Accumulation accumulation{model};
                auto gradients = accumulation.gradients(layer);
                for (auto& g : gradients[Wide{}]) { g = sk::bf16(-0x1p-12F); }  // a 32nd of the spacing above 1
                accumulation.add(std::move(gradients));
                optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
            }
            const auto window = layer.unshard();
            double sum = 0;
            for (const sk::bf16 value : window[Wide{}]) { sum += static_cast<double>(static_cast<float>(value)); }
            if (rank.rank() == 0) { mean = sum / 4000; }
        });
        return mean;
    };
    CHECK(mean_of(std::optional<sk::StochasticRounding>{}) == 1);  // to the nearest, nothing ever moves
    const double mean = mean_of(std::optional(sk::StochasticRounding{.seed = 1}));
    // 4000 walks of 100 steps: deviation sqrt(100 * 31/32 * 1/32 / 4000) * 2^-7, and six of them.
    CHECK(std::fabs(mean - (1 + 100 * 0x1p-12)) < 6 * 0.0275 * 0x1p-7);
}

TEST_CASE("an update converts some elements at a time, of which each gets the bits that it gets in any other shard") {
    using Wide = sk::TensorList<sk::bf16>;
    const auto trained = [](std::size_t dp, const sk::ShardedOptions<Wide, sk::FullShard>& options) {
        std::vector<float> all(3001);
        sk::threads::run(sk::DeviceMesh{dp}, [&](auto& rank) {
            sk::Sharded<Wide, sk::FullShard> layer{rank, "wide", {{"weight", {all.size()}}}, options};
            layer.initialize([](auto, auto, std::uint64_t i) { return 1 + 0.125 * static_cast<double>(i % 64); });
            sk::Model model{layer};
            sk::AdamW optimizer{model, {.learning_rate = 0.1}};
            step(layer, optimizer, 0);
            step(layer, optimizer, 1);
            std::vector<float> own(all.size());
            layer.read_full("weight", std::span(own));
            if (rank.rank() == 0) { all = std::move(own); }
        });
        return all;
    };
    for (const sk::ShardedOptions<Wide, sk::FullShard>& options :
         {sk::ShardedOptions<Wide, sk::FullShard>{},
          {.master = sk::MasterWeights::none},
          {.master = sk::MasterWeights::none, .stochastic_rounding = {{.seed = 5}}},
          {.master = sk::MasterWeights::split}}) {
        const auto whole = trained(1, options);
        CHECK(whole == trained(3, options));
        CHECK(whole[3000] != 1 + 0.125F * static_cast<float>(3000 % 64));
    }
}

TEST_CASE("stochastic rounding: a run that is resumed, on other ranks, goes on with the same bits") {
    const temporary_folder::Folder folder;
    const auto options = [](const sk::DynamicPolicy& policy) {
        return Layer<sk::bf16>::Options{
            .policy = policy, .master = sk::MasterWeights::none, .stochastic_rounding = {{.seed = 3}}};
    };
    std::vector<float> expected;
    sk::threads::run(sk::DeviceMesh{3}, [&](auto& rank) {
        Layer<sk::bf16> layer{rank, "block", {}, options(sk::DynamicPolicy(sk::FullShard{}))};
        number(layer);
        sk::Model model{layer};
        sk::AdamW optimizer{model, {.learning_rate = 0.001}};
        for (int t = 0; t < 4; ++t) {
            if (t == 2) {
                sk::checkpoint::save(rank, folder.file("run"), 2, sk::checkpoint::State{model, optimizer});
            }
            step(layer, optimizer, t);
        }
        const auto all = values(layer);
        if (rank.rank() == 0) { expected = all; }
    });
    sk::threads::run(sk::DeviceMesh{2}, [&](auto& rank) {
        Layer<sk::bf16> layer{rank, "block", {}, options(sk::DynamicPolicy(sk::NoShard{}))};
        sk::Model model{layer};
        sk::AdamW optimizer{model, {.learning_rate = 0.001}};
        sk::checkpoint::load(rank, folder.file("run/step-00000002"), sk::checkpoint::State{model, optimizer});
        for (int t = 2; t < 4; ++t) { step(layer, optimizer, t); }
        CHECK(values(layer) == expected);
    });
}

TEST_CASE("masters and rounding that a group cannot have, or that ranks do not agree on, are refused") {
    using sk::MasterWeights;
    const sk::DynamicPolicy policy(sk::NoShard{});
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        CHECK_REFUSED((Layer<sk::bf16>{rank, "g", {}, {.policy = policy, .stochastic_rounding = {{1}}}}),
                      "'g': stochastic rounding of bf16 parameters with a master, expected 16-bit parameters "
                      "and MasterWeights::none");
        CHECK_REFUSED((Layer<float>{rank, "g", {}, {.policy = policy, .stochastic_rounding = {{1}}}}),
                      "'g': stochastic rounding of fp32 parameters without a master");
        CHECK_REFUSED((Layer<float, sk::Precision<float, float, double, double>>{
                          rank, "g", {}, {.policy = policy, .master = MasterWeights::none}}),
                      "'g': MasterWeights::none with fp64 masters of fp32 parameters, expected kept");
    });
    const auto on_two = [&](auto options_of) {
        sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
            const Layer<sk::bf16> layer{rank, "g", {}, options_of(rank.rank())};
        });
    };
    using Options = Layer<sk::bf16>::Options;
    CHECK_REFUSED(on_two([&](std::size_t rank) {
                      return Options{.policy = policy,
                                     .master = rank == 0 ? MasterWeights::none : MasterWeights::kept};
                  }),
                  "'g': rank 0 makes it with master weights not kept, rank 1 with master weights kept, expected the "
                  "same path, names, shapes, attributes, policy, masters and seed on every rank");
    CHECK_REFUSED(on_two([&](std::size_t rank) {
                      return Options{
                          .policy = policy, .master = MasterWeights::none, .stochastic_rounding = {{rank}}};
                  }),
                  "'g': rank 0 makes it with stochastic rounding of seed ");
}

}  // namespace master_weights_test
