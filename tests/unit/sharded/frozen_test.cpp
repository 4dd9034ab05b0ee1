// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>

#include "unit/sharded/linear_layer.hpp"
#include "unit/thrown_message.hpp"
#include "unit/watched_memory.hpp"

namespace sk = shardkit;

namespace frozen_test {

using toy::Bias;
using toy::Flat;
using toy::Weight;

namespace {

template <class Precision, class Rank>
auto frozen_layer(Rank& rank, std::string path, const sk::DynamicPolicy& policy, toy::Linear::Mask frozen) {
    toy::LinearLayer<sk::DynamicPolicy, Precision> layer(rank, std::move(path), toy::linear_shapes(),
                                                         {policy, sk::Packing::aligned, frozen});
    number(layer);
    return layer;
}

template <class Layer, class P>
std::vector<float> read(Layer& layer, P parameter, std::size_t numel) {
    std::vector<float> values(numel);
    layer.read_full(parameter, std::span(values));
    return values;
}

template <class Precision>
void check_frozen_weight(const sk::DynamicPolicy& policy) {
    CAPTURE(policy.name());
    sk::threads::run(Flat{3}, [&](auto& rank) {
        auto layer = frozen_layer<Precision>(rank, "layer", policy, toy::Linear::mask<Weight>());
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 1, .weight_decay = 0.5}};
        const auto weight = read(layer, Weight{}, 35);
        sk::Accumulation accumulation{model};
        auto handle = accumulation.gradients(layer);
        for (auto& g : handle[Weight{}]) { g = typename Precision::Gradient(1e4F); }  // written, but nobody looks
        for (auto& g : handle[Bias{}]) { g = typename Precision::Gradient(2); }
        accumulation.add(std::move(handle));
        auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        CHECK(sk::global_norm(reduced).value() == doctest::Approx(2 * std::sqrt(7.0)).epsilon(1e-6));
        optimizer.step(std::move(reduced));
        CHECK(read(layer, Weight{}, 35) == weight);
        const auto bias = read(layer, Bias{}, 7);
        for (std::size_t i = 0; i < 7; ++i) {
            const float before = static_cast<float>(100 + i);
            CHECK(bias[i] == before - (2 + before / 2));
        }
    });
}

void check_frozen_group(const sk::DynamicPolicy& policy) {
    CAPTURE(policy.name());
    sk::threads::run(Flat{2}, [&](auto& rank) {
        auto frozen = frozen_layer<sk::Precision<sk::bf16>>(rank, "frozen", policy, toy::Linear::all());
        auto trained = frozen_layer<sk::Precision<sk::bf16>>(rank, "trained", policy, {});
        CHECK_FALSE(frozen.trainable());
        sk::Model model{frozen, trained};
        sk::AdamW optimizer{model, {.learning_rate = 1}};
        const auto before = read(frozen, Bias{}, 7);
        for (int step = 0; step < 2; ++step) {
            sk::Accumulation accumulation{model};
            CHECK_USAGE_ERROR(accumulation.gradients(frozen),
                              "'frozen': gradients() of a group whose parameters are all frozen");
            rank.traffic().clear();
            toy::add(accumulation, trained, 1);
            auto reduced = sk::reduce(std::move(accumulation), sk::mean);
            CHECK(toy::calls(rank, sk::Verb::all_reduce) + toy::calls(rank, sk::Verb::reduce_scatter) == 1);
            CHECK(sk::global_norm(reduced).value() == doctest::Approx(std::sqrt(14910.0 + 140.0)));
            std::vector<float> values(7);
            CHECK_USAGE_ERROR(reduced.read_full(frozen, Bias{}, std::span(values)),
                              "'frozen': read_full of a group without gradients");
            optimizer.step(std::move(reduced));
        }
        CHECK(read(frozen, Bias{}, 7) == before);
        CHECK(read(trained, Bias{}, 7) != before);
        // Neither master nor states, only the parameters.
        for (const auto& info : frozen.shards()) { CHECK(info.kind == "parameter"); }
        for (const auto& info : optimizer.shards()) { CHECK(info.path == "trained"); }
        CHECK(optimizer.steps(frozen) == 0);
        CHECK(optimizer.steps(trained) == 2);
        // Its windows gather where the policy shards parameters, and a load reaches every rank.
        rank.traffic().clear();
        for (int i = 0; i < 2; ++i) {
            const auto window = frozen.unshard();
            CHECK(static_cast<float>(window[Bias{}][6]) == 106);
        }
        CHECK(toy::calls(rank, sk::Verb::all_gather) ==
              (policy.values().parameters == sk::Placement::sharded ? 2 : 0));
    });
}

struct Table : sk::Param<"table", float, 64, 48>, sk::Frozen {};
struct Head : sk::Param<"head", float, 48, 33> {};
struct Offset : sk::Param<"offset", float, 700> {};
using Mixed = sk::Params<Offset, Table, Head>;

/// A step of three microbatches over a group of which a part is frozen: what is held at its end, when every buffer of
/// the step has been made, is what the plan says.
template <class Precision>
void check_mixed_plan(const Flat& mesh, const sk::DynamicPolicy& policy) {
    CAPTURE(policy.name());
    sk::threads::run(mesh, [&](auto& rank) {
        std::size_t held = 0;
        const MemoryWatch watch{[&](std::size_t bytes) { held += bytes; }, [&](std::size_t bytes) { held -= bytes; },
                                /*local=*/false};
        const sk::Communicator watched(std::make_shared<WatchedVerbs>(rank.world().verbs(), watch));
        sk::MeshRank<Flat> counted(mesh, watched);
        sk::Sharded<Mixed, sk::DynamicPolicy, Precision> layer(counted, "layer", {}, {policy});
        sk::Model model{layer};
        sk::AdamW optimizer{model};
        sk::Accumulation accumulation{model, 3};
        for (int m = 0; m < 3; ++m) {
            const auto window = layer.unshard();
            accumulation.add_zero(layer);
        }
        optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
        const sk::Plan planned = sk::plan(model, {.microbatches = 3, .norms_per_step = 0});
        CHECK(held == planned.memory.total().value);
        CHECK(planned.numel == 700 + 64 * 48 + 48 * 33);
    });
}

}  // namespace

TEST_CASE("a group of which a part is frozen holds what is planned, under every policy") {
    for (const std::size_t ranks : {2U, 4U}) {
        CAPTURE(ranks);
        const std::array policies{
            sk::DynamicPolicy(sk::NoShard{}),          sk::DynamicPolicy(sk::ShardOptimizer{}),
            sk::DynamicPolicy(sk::ShardGradOp{}),      sk::DynamicPolicy(sk::FullShard{}),
            sk::DynamicPolicy(sk::HybridShard<2>{}),   sk::DynamicPolicy(sk::HybridOptimizer<2>{}),
            sk::DynamicPolicy(sk::SecondaryShard<2>{})};
        for (const sk::DynamicPolicy& policy : policies) {
            check_mixed_plan<sk::Precision<float>>(Flat{ranks}, policy);
            check_mixed_plan<sk::Precision<float, sk::bf16, float, double>>(Flat{ranks}, policy);
        }
    }
}

TEST_CASE("a frozen parameter of a group keeps its value and is not in the norm") {
    check_frozen_weight<sk::Precision<double>>(sk::DynamicPolicy(sk::NoShard{}));
    check_frozen_weight<sk::Precision<float>>(sk::DynamicPolicy(sk::ShardOptimizer{}));
    check_frozen_weight<sk::Precision<double>>(sk::DynamicPolicy(sk::FullShard{}));
    check_frozen_weight<sk::Precision<float, sk::bf16>>(sk::DynamicPolicy(sk::FullShard{}));
}

TEST_CASE("a group that is frozen as a whole has no gradients, master or states, and no collective but gathers") {
    check_frozen_group(sk::DynamicPolicy(sk::NoShard{}));
    check_frozen_group(sk::DynamicPolicy(sk::ShardOptimizer{}));
    check_frozen_group(sk::DynamicPolicy(sk::ShardGradOp{}));
    check_frozen_group(sk::DynamicPolicy(sk::FullShard{}));
}

}  // namespace frozen_test
