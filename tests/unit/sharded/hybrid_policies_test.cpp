// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/checkpoint.hpp>
#include <shardkit/local_shards.hpp>
#include <shardkit/moving_average.hpp>
#include <shardkit/policy/named_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/verify.hpp>

#include "temporary_folder.hpp"
#include "unit/sharded/instantiations.hpp"
#include "unit/sharded/oracle_checks.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace toy SHARDKIT_BUILD {
template Ranks train_as<sk::Precision<double>>(Mesh, const FullOverBoth&, const Training&, const Hooks&,
                                               sk::RankOptions, const sk::threads::LaunchOptions&);
}  // namespace toy SHARDKIT_BUILD

namespace hybrid_policies_test {

TEST_CASE("hybrid sharding trains as one rank does, in fp64 to 1e-12") {
    using Dynamic = sk::HybridShard<sk::dynamic>;
    SUBCASE("groups of 2, static, where 2 divides dp") {
        toy::check_in_fp64<sk::HybridShard<2>>(
            [](toy::Extents e) { return e.dp % 2 == 0 ? std::optional(sk::HybridShard<2>{}) : std::nullopt; });
    }
    SUBCASE("groups of 1 and of everybody") {
        for (const toy::Training& training : toy::trainings(3)) {
            for (const std::size_t dp : {1U, 3U, 4U}) {
                toy::check_against_oracle<sk::Precision<double>>({dp}, Dynamic{1}, training, 1e-12);
                toy::check_against_oracle<sk::Precision<double>>({dp}, Dynamic{dp}, training, 1e-12);
            }
        }
    }
    SUBCASE("groups of 4 of 8, dynamic, and of 2 of 4 x cp 2") {
        for (const toy::Training& training : toy::trainings(3)) {
            toy::check_against_oracle<sk::Precision<double>>({8}, Dynamic{4}, training, 1e-12);
            toy::check_against_oracle<sk::Precision<double>>({4, 1, 2}, Dynamic{2}, training, 1e-12);
        }
    }
}

TEST_CASE("sharding over dp x cp trains as one rank does, in fp64 to 1e-12") {
    using OverCp = sk::Axes<sk::DpShard, sk::Cp>;
    SUBCASE("full_shard") { toy::check_in_fp64<sk::ShardOver<sk::FullShard, OverCp>>(); }
    SUBCASE("hybrid_shard") {
        using Hybrid = sk::ShardOver<sk::HybridShard<sk::dynamic>, OverCp>;
        for (const toy::Training& training : toy::trainings(3)) {
            toy::check_against_oracle<sk::Precision<double>>({4, 1, 2}, Hybrid{2}, training, 1e-12);
            toy::check_against_oracle<sk::Precision<double>>({2, 2, 2}, Hybrid{1}, training, 1e-12);
        }
    }
}

TEST_CASE("HybridOptimizer trains as HybridShard does, to the bit, and the other layouts that it is at the ends") {
    const toy::Training training{
        .samples = 24, .microbatches = 3, .rule = toy::Rule::adamw, .learning_rate = 0.01, .clip = 1};
    const auto trained = [&](const toy::Mesh& mesh, const auto& policy) {
        return toy::train<sk::Precision<double>>(mesh, policy, training);
    };
    const auto same = [](const std::vector<toy::RankResult>& a, const std::vector<toy::RankResult>& b) {
        return toy::same_bits(a[0], b[0]);
    };
    for (const toy::Mesh& mesh : {toy::Mesh(8, 1, 1), toy::Mesh(4, 2, 1), toy::Mesh(4, 1, 2)}) {
        CAPTURE(mesh.describe());
        CHECK(same(trained(mesh, sk::HybridOptimizer<2>{}), trained(mesh, sk::HybridShard<2>{})));
        CHECK(same(trained(mesh, sk::HybridOptimizer<4>{}), trained(mesh, sk::HybridShard<4>{})));
    }
    const toy::Mesh six(6, 1, 1);
    CHECK(same(trained(six, sk::HybridOptimizer<sk::dynamic>{6}), trained(six, sk::FullShard{})));
    CHECK(same(trained(six, sk::SecondaryShard<sk::dynamic>{6}), trained(six, sk::FullShard{})));
    CHECK(same(trained(six, sk::SecondaryShard<sk::dynamic>{1}), trained(six, sk::FullShard{})));
}

namespace {

/// A frozen group and a trained one beside it, whose average the frozen one holds.
struct Weight : sk::Param<"weight", float, 37, 5> {};
struct Bias : sk::Param<"bias", float, 3> {};
using Block = sk::Params<Weight, Bias>;

template <class Precision, class Rank>
struct Pair {
    using Layer = sk::Sharded<Block, sk::DynamicPolicy, Precision>;

    Pair(Rank& rank, const sk::DynamicPolicy& policy)
        : layer(rank, "layer", {}, {policy}), average(rank, "average", {}, frozen(policy)) {}
    static typename Layer::Options frozen(const sk::DynamicPolicy& policy) {
        typename Layer::Options options{policy};
        options.frozen = Block::all();
        return options;
    }

    Layer layer;
    Layer average;
    sk::Model model{layer};
    sk::Model averages{average};
    sk::SGD optimizer{model, {.learning_rate = 0.25}};
};
template <class Layer>
std::vector<float> shown(Layer& layer) {
    std::vector<float> all;
    const auto window = layer.unshard();
    for (std::size_t p = 0; p < 2; ++p) {
        for (const auto value : window.view(p)) { all.push_back(static_cast<float>(value)); }
    }
    return all;
}

}  // namespace

TEST_CASE("a shard that stays in its group is stale behind every write, and fetched once") {
    for (const std::string policy : {"secondary_shard:2", "hybrid_optimizer:2", "secondary_shard:1",
                                     "hybrid_optimizer:1", "secondary_shard:4"}) {
        CAPTURE(policy);
        const temporary_folder::Folder folder;
        sk::threads::run(sk::DeviceMesh<4>{}, [&](auto& rank) {
            using Trainer = Pair<sk::Precision<float>, std::remove_reference_t<decltype(rank)>>;
            Trainer placed(rank, sk::named_policy(policy));
            Trainer whole(rank, sk::DynamicPolicy(sk::NoShard{}));
            const auto gathers = [&](bool across) {
                std::uint64_t calls = 0;
                for (const auto& entry : rank.traffic().entries()) {
                    const bool replicas = entry.axes == "dp_replicate" || policy.ends_with(":1");
                    if (entry.verb == sk::Verb::all_gather && replicas == across) { calls += entry.calls; }
                }
                return calls;
            };
            const bool alone = policy.ends_with(":4");
            // `write` does the same to both; then windows show it, and the first one alone goes to other groups.
            const auto check = [&](const std::string& what, const auto& write, auto of) {
                CAPTURE(what);
                write(placed);
                write(whole);
                const std::vector<float> expected = shown(whole.*of);
                rank.traffic().clear();
                CHECK(shown(placed.*of) == expected);
                CHECK(gathers(true) == (alone ? 0 : 1));
                for (int window = 0; window < 3; ++window) { CHECK(shown(placed.*of) == expected); }
                CHECK(gathers(true) == (alone ? 0 : 1));
            };
            const auto layer = &Trainer::layer;
            const auto average = &Trainer::average;
            const auto value = [](double offset) {
                return [offset](auto /*path*/, auto /*name*/, std::uint64_t i) {
                    return offset + 0.03 * static_cast<double>(i);
                };
            };
            for (unsigned round = 0; round < 2; ++round) {
                check(
                    "initialize", [&](Trainer& t) { t.layer.initialize(value(round)); }, layer);
                check(
                    "load",
                    [&](Trainer& t) {
                        std::vector<float> values(185);
                        for (std::size_t i = 0; i < values.size(); ++i) { values[i] = 2.5F * static_cast<float>(i); }
                        t.layer.load(Weight{}, values);
                    },
                    layer);
                check(
                    "update",
                    [&](Trainer& t) {
                        sk::Accumulation accumulation{t.model, 2};
                        for (int m = 0; m < 2; ++m) {
                            auto gradients = accumulation.gradients(t.layer);
                            for (float& g : gradients.view(0)) {
                                g += static_cast<float>(static_cast<unsigned>(m) + round);
                            }
                            accumulation.add(std::move(gradients));
                        }
                        t.optimizer.step(std::move(accumulation));
                    },
                    layer);
                check(
                    "update_shards",
                    [&](Trainer& t) {
                        sk::update_shards(t.layer, [](const sk::ShardRun<float>& run) {
                            for (float& each : run.values) { each += 1; }
                        });
                    },
                    layer);
                check(
                    "average",
                    [&](Trainer& t) {
                        if (round == 0) { t.average.initialize(value(7)); }
                        sk::MovingAverage moving{t.averages, t.model};
                        moving.update(0.5);
                    },
                    average);
                sk::checkpoint::save(rank, folder.path(), round + 1,
                                     sk::checkpoint::State{placed.model, placed.optimizer});
                check(
                    "initialize again", [&](Trainer& t) { t.layer.initialize(value(9)); }, layer);
                check(
                    "load of a checkpoint",
                    [&](Trainer& t) {
                        sk::checkpoint::load(rank, folder.file("step-0000000" + std::to_string(round + 1)),
                                             sk::checkpoint::State{t.model, t.optimizer});
                    },
                    layer);
                sk::verify_replicas(placed.model, placed.optimizer);
            }
        });
    }
}

TEST_CASE("a hybrid group that does not divide dp is refused with both numbers") {
    CHECK_THROWS_WITH_AS(
        toy::train<sk::Precision<double>>(toy::Mesh(4, 1, 1), sk::HybridShard<sk::dynamic>{3}, {}),
        doctest::Contains("'table': policy hybrid_shard with shard groups of 3 does not divide dp = 4"),
        std::invalid_argument);
    CHECK_INVALID_ARGUMENT(sk::HybridShard<sk::dynamic>{0}, "HybridShard: group of 0 ranks, expected at least 1");
}

}  // namespace hybrid_policies_test
