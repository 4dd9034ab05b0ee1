// SPDX-License-Identifier: Apache-2.0
#include <shardkit/step/local_shards.hpp>

#include <chrono>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/mesh/axes.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/verbs/all_reduce.hpp>

#include "unit/sharded/linear_layer.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace local_shards_test {

using toy::Bias;
using toy::Flat;
using toy::Weight;

namespace {

template <class F>
void for_each_policy(const F& f) {
    for (const sk::DynamicPolicy& policy :
         {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
          sk::DynamicPolicy(sk::ShardGradOp{}), sk::DynamicPolicy(sk::FullShard{}),
          sk::DynamicPolicy(sk::HybridShard<2>{}), sk::DynamicPolicy(sk::HybridOptimizer<2>{})}) {
        CAPTURE(policy.name());
        f(policy);
    }
}

/// The whole parameters, as windows show them.
template <class Layer>
std::vector<float> parameters_of(Layer& layer) {
    std::vector<float> values;
    const auto window = layer.unshard();
    for (const auto x : window[Weight{}]) { values.push_back(static_cast<float>(x)); }
    for (const auto x : window[Bias{}]) { values.push_back(static_cast<float>(x)); }
    return values;
}

/// SGD with a learning rate of 1/8, as a program writes it.
template <class Reduced, class Layer>
void step_by_hand(const Reduced& reduced, Layer& layer) {
    const auto gradients = sk::gradient_shard(reduced, layer);
    sk::update_shards(layer, [&](sk::ShardRun<float> run) {
        const auto sums = gradients.of(run);
        REQUIRE(sums.size() == run.values.size());
        for (std::size_t i = 0; i < sums.size(); ++i) {
            run.values[i] -= 0.125F * (sums[i] * static_cast<float>(gradients.scale()));
        }
    });
}

template <class Precision>
void check_sgd_by_hand(const sk::DynamicPolicy& policy) {
    sk::threads::run(Flat{4}, [&](auto& rank) {
        auto by_hand = toy::linear_layer<sk::DynamicPolicy, Precision>(rank, "layer", policy);
        auto by_rule = toy::linear_layer<sk::DynamicPolicy, Precision>(rank, "layer", policy);
        sk::Model model{by_hand};
        sk::Model other{by_rule};
        sk::SGD optimizer{other, {.learning_rate = 0.125}};
        for (int step = 0; step < 3; ++step) {
            sk::Accumulation mine{model, 2};
            sk::Accumulation its{other, 2};
            for (const double factor : {1.0, 0.25}) {
                toy::add(mine, by_hand, factor * static_cast<double>(rank.rank() + 1));
                toy::add(its, by_rule, factor * static_cast<double>(rank.rank() + 1));
            }
            {
                const auto reduced = sk::reduce(std::move(mine), sk::mean);
                step_by_hand(reduced, by_hand);
            }
            optimizer.step(std::move(its), {.divisor = sk::mean});
            CHECK(parameters_of(by_hand) == parameters_of(by_rule));
        }
    });
}

}  // namespace

TEST_CASE("SGD over the shards in hand is the library's, bit for bit, with every policy and with master weights") {
    for_each_policy([](const sk::DynamicPolicy& policy) {
        check_sgd_by_hand<sk::Precision<float>>(policy);
        check_sgd_by_hand<sk::Precision<sk::bf16>>(policy);
    });
}

TEST_CASE("runs name every element that some rank updates once, within its tensor and in the flat order") {
    sk::threads::run(Flat{3}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::FullShard>(rank);
        std::size_t elements = 0;
        sk::read_shards(layer, [&](const auto& run) {
            static_assert(std::is_const_v<std::remove_reference_t<decltype(run.values[0])>>);
            CHECK(run.name == (run.parameter == 0 ? "weight" : "bias"));
            CHECK(run.part.numel() == (run.parameter == 0 ? 35 : 7));
            CHECK(run.range.size() == run.values.size());
            CHECK(run.flat.size() == run.values.size());
            CHECK(run.flat.begin / (layer.layout().buffer_numel() / 3) == rank.rank());
            for (std::size_t i = 0; i < run.values.size(); ++i) {
                const auto first = static_cast<double>(run.range.begin + i);
                CHECK(run.values[i] == (run.parameter == 0 ? first : 100 + first));
            }
            elements += run.values.size();
        });
        std::vector<double> sum{static_cast<double>(elements)};
        sk::all_reduce_in_place(rank.world(), sk::ReduceOp::sum, std::span(sum), rank.compute_stream());
        CHECK(sum[0] == 42);
    });
}

TEST_CASE("an element is shown on every rank that keeps it: on one, on one of each shard group, or on all") {
    for_each_policy([](const sk::DynamicPolicy& policy) {
        const std::string name(policy.name());
        const std::size_t copies = name == "no_shard" ? 4 : name.starts_with("hybrid_shard") ? 2 : 1;
        sk::threads::run(Flat{4}, [&](auto& rank) {
            auto layer = toy::linear_layer<sk::DynamicPolicy>(rank, "layer", policy);
            std::vector<double> shown(35 + 7);
            sk::read_shards(layer, [&](const auto& run) {
                for (std::size_t i = 0; i < run.values.size(); ++i) {
                    shown[(run.parameter == 0 ? 0 : 35) + run.range.begin + i] += 1;
                }
            });
            sk::all_reduce_in_place(rank.world(), sk::ReduceOp::sum, shown);
            CHECK(shown == std::vector<double>(35 + 7, static_cast<double>(copies)));
            if (copies == 2) {
                // The ranks of one copy have each element once.
                const auto one_copy = rank.template communicator<sk::Axes<sk::DpShard>>(2);
                std::vector<double> once(1);
                sk::read_shards(layer, [&](const auto& run) { once[0] += static_cast<double>(run.values.size()); });
                sk::all_reduce_in_place(one_copy, sk::ReduceOp::sum, once);
                CHECK(once[0] == 35 + 7);
            }
        });
    });
}

TEST_CASE("reduced gradients are there when they are shown, whatever the streams still do") {
    for_each_policy([](const sk::DynamicPolicy& policy) {
        sk::threads::run(Flat{4},
                         [&](auto& rank) {
                             auto layer = toy::linear_layer(rank, "layer", policy);
                             sk::Model model{layer};
                             sk::Accumulation accumulation{model};
                             toy::add(accumulation, layer, 1);
                             // The others' reductions wait for this one's.
                             if (rank.rank() == 3) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }
                             const auto reduced = sk::reduce(std::move(accumulation), sk::mean);
                             const auto gradients = sk::gradient_shard(reduced, layer);
                             CHECK(gradients.scale() == 0.25);
                             sk::read_shards(layer, [&](const auto& run) {
                                 const auto sums = gradients.of(run);
                                 for (std::size_t i = 0; i < sums.size(); ++i) {
                                     CHECK(sums[i] == 4 * static_cast<double>(run.range.begin + i + 1));
                                 }
                             });
                         },
                         {}, {.overlap = sk::threads::Overlap::threads});
    });
}

TEST_CASE("the scale of reduced gradients has the loss scale in it") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::FullShard>(rank);
        sk::Model model{layer};
        sk::LossScale scale(rank, {.initial = 8});
        sk::Accumulation accumulation{model};
        toy::add(accumulation, layer, 8);
        const auto reduced = sk::reduce(std::move(accumulation), sk::mean, scale);
        CHECK(sk::gradient_shard(reduced, layer).scale() == 1.0 / 16);
    });
}

TEST_CASE("gradients are read of what was reduced, while it is there, and written where no step is under way") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::FullShard>(rank, "a");
        auto idle = toy::linear_layer<sk::FullShard>(rank, "b");
        auto other = toy::linear_layer<sk::FullShard>(rank, "c");
        sk::Model model{layer, idle};
        const char* const under_way =
            "': gradient_shard(layer) is for sums of the program's own, before assume_reduced, and a step over the "
            "group is under way; read its gradients by gradient_shard(reduced, layer)";
        CHECK(sk::gradient_shard(layer).size() == layer.layout().buffer_numel() / 2);
        sk::Accumulation accumulation{model};
        CHECK_USAGE_ERROR(sk::gradient_shard(layer), std::string("'a") + under_way);
        toy::add(accumulation, layer, 1);
        accumulation.skip(idle);
        auto reduced = sk::reduce(std::move(accumulation), sk::sum);
        CHECK_USAGE_ERROR(sk::gradient_shard(layer), std::string("'a") + under_way);
        CHECK_USAGE_ERROR(sk::gradient_shard(reduced, idle), "'b': gradient_shard of a group without gradients");
        CHECK_THROWS_AS(static_cast<void>(sk::gradient_shard(reduced, other)), sk::UsageError);
        const auto shard = sk::gradient_shard(reduced, layer);
        CHECK(shard.flat() == sk::IndexRange{32 * rank.rank(), 32 * rank.rank() + 32});
        sk::ShardRun<float> far;
        far.name = "weight";
        far.flat = {60, 70};
        CHECK_THROWS_AS(static_cast<void>(shard.of(far)), std::invalid_argument);
        {
            const auto consumed = std::move(reduced);
            static_cast<void>(consumed);
        }
        CHECK_THROWS_AS(static_cast<void>(sk::gradient_shard(reduced, layer)), sk::UsageError);
        if constexpr (sk::checked) { CHECK_THROWS_AS(static_cast<void>(shard.sums()), sk::UsageError); }
        CHECK(sk::gradient_shard(layer).size() == layer.layout().buffer_numel() / 2);
    });
}

TEST_CASE("shards are not written under a window, and a write that throws leaves a group that refuses to train") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::ShardOptimizer>(rank);
        sk::Model model{layer};
        const auto add_one = [&](auto run) {
            for (auto& value : run.values) { value += 1; }
        };
        {
            const auto window = layer.unshard();
            CHECK_THROWS_AS(sk::update_shards(layer, add_one), sk::UsageError);
        }
        // Of two shards the second one has the bias.
        if (rank.rank() == 1) {
            const auto fail_at_bias = [](auto run) {
                if (run.parameter == 1) { throw std::runtime_error("no state of it"); }
            };
            CHECK_THROWS_AS(sk::update_shards(layer, fail_at_bias), std::runtime_error);
            CHECK_THROWS_AS(sk::read_shards(layer, [](const auto&) {}), sk::UsageError);
            CHECK_THROWS_AS(static_cast<void>(layer.unshard()), sk::UsageError);
        }
        toy::number(layer);
        sk::update_shards(layer, add_one);
        const std::vector<float> values = parameters_of(layer);
        for (std::size_t i = 0; i < 35; ++i) { CHECK(values[i] == static_cast<float>(i + 1)); }
        for (std::size_t i = 0; i < 7; ++i) { CHECK(values[35 + i] == static_cast<float>(101 + i)); }
    });
}

}  // namespace local_shards_test
