// SPDX-License-Identifier: Apache-2.0
// Hashes of values over all ranks: the same on any mesh and under any policy for equal bits, those of the formula on
// one rank, and others once one element of one rank has changed.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/muon.hpp>
#include <shardkit/shardkit.hpp>
#include <shardkit/verify.hpp>

#include "unit/thrown_message.hpp"

namespace hash_values_test {

namespace sk = shardkit;
using Hashes = std::vector<sk::ValuesHash>;

struct Weight : sk::Param<"weight", float, 67, 12>, sk::tp::Split<1> {};
struct Rows : sk::Param<"rows", float, 12, 5>, sk::tp::Split<0> {};
struct Bias : sk::Param<"bias", float, 33> {};
struct Fixed : sk::Param<"fixed", float, 5>, sk::Frozen {};
using Net = sk::Params<Weight, Rows, Bias, Fixed>;
using Layer = sk::Sharded<Net, sk::DynamicPolicy>;

struct Hashed {
    Hashes values;
    Hashes gradients;
    Hashes states;
};

/// Trains on a mesh so that all bits are the same on every one: data rank 0 alone has gradients.
/// @param spoil  what a rank does with its layer and optimizer behind the last step
template <sk::StateFormat Format = sk::StateFormat::full, class Spoil>
Hashed train(std::size_t dp, std::size_t tp, const sk::DynamicPolicy& policy, const Spoil& spoil) {
    Hashed hashed;
    sk::threads::run(sk::DeviceMesh<sk::dynamic, sk::dynamic>{dp, tp}, [&](auto& rank) {
        std::vector<Layer> layers;
        for (const char* path : {"layers.0", "layers.1"}) {
            layers.emplace_back(rank, path, sk::Shapes<Net>{}, Layer::Options{policy});
        }
        sk::Model model{layers};
        sk::AdamW optimizer{model, sk::states_in<Format>, {.learning_rate = 0.01}};
        model.initialize([](auto, auto, std::uint64_t i) { return 0.01 * static_cast<double>(i % 31) - 0.15; });
        Hashed mine;
        for (int step = 0; step < 2; ++step) {
            sk::Accumulation accumulation{model};
            for (Layer& layer : layers) {
                auto gradients = accumulation.gradients(layer);
                const bool counts = rank.grid().coordinate(sk::Dp::name, rank.rank()) == 0;
                for (std::size_t p = 0; p < Net::count && counts; ++p) {
                    auto view = gradients.view(p);
                    for (std::size_t i = 0; i < view.size(); ++i) {
                        view.data()[i] = static_cast<float>(layer.parameters()[p].part.whole_index(i) % 17) - 8;
                    }
                }
                accumulation.add(std::move(gradients));
            }
            auto reduced = sk::reduce(std::move(accumulation), sk::sum);
            mine.gradients = sk::hash_values(reduced);
            optimizer.step(std::move(reduced));
        }
        spoil(rank, layers, optimizer);
        sk::Optimizer& any = optimizer;
        mine.values = sk::hash_values(model);
        mine.states = sk::hash_values(any);
        CHECK(sk::hash_values(optimizer) == mine.states);
        if (rank.rank() == 0) { hashed = mine; }
    });
    return hashed;
}
template <sk::StateFormat Format = sk::StateFormat::full>
Hashed train(std::size_t dp, std::size_t tp, const sk::DynamicPolicy& policy) {
    return train<Format>(dp, tp, policy, [](auto& /*rank*/, auto& /*layers*/, auto& /*optimizer*/) {});
}

TEST_CASE("hashes of equal bits are equal on any mesh and under any policy") {
    const sk::DynamicPolicy no_shard(sk::NoShard{});
    const Hashed alone = train(1, 1, no_shard);
    REQUIRE(alone.values.size() == 2);
    CHECK(alone.values[0].path == "layers.0");
    CHECK(alone.values[0].kind == "parameter");
    REQUIRE(alone.gradients.size() == 2);
    CHECK(alone.gradients[1].path == "layers.1");
    CHECK(alone.gradients[1].kind == "reduced gradient");
    REQUIRE(alone.states.size() == 4);
    CHECK(alone.states[0].kind == "exp_avg");
    CHECK(alone.states[3].kind == "exp_avg_sq");
    CHECK(alone.values[0].hash != 0);
    CHECK(alone.states[0].hash != alone.states[1].hash);
    const auto check = [&](std::size_t dp, std::size_t tp, const sk::DynamicPolicy& policy) {
        CAPTURE(dp);
        CAPTURE(tp);
        CAPTURE(policy.name());
        const Hashed other = train(dp, tp, policy);
        CHECK(other.values == alone.values);
        CHECK(other.states == alone.states);
        CHECK(other.gradients == alone.gradients);
    };
    check(3, 1, no_shard);
    check(2, 2, no_shard);
    check(5, 1, sk::DynamicPolicy(sk::FullShard{}));
    check(2, 3, sk::DynamicPolicy(sk::FullShard{}));
    check(3, 1, sk::DynamicPolicy(sk::ShardOptimizer{}));
    check(3, 2, sk::DynamicPolicy(sk::ShardGradOp{}));
    check(4, 1, sk::DynamicPolicy(sk::HybridShard<2>{}));
    check(4, 1, sk::DynamicPolicy(sk::HybridOptimizer<2>{}));
    check(4, 2, sk::DynamicPolicy(sk::HybridOptimizer<2>{}));
    check(4, 1, sk::DynamicPolicy(sk::SecondaryShard<2>{}));
    const Hashed in8 = train<sk::StateFormat::block8>(1, 1, no_shard);
    REQUIRE(in8.states.size() == 8);
    CHECK(in8.states[1].kind == "exp_avg scales");
    CHECK(in8.states[0].hash != in8.states[4].hash);
}
TEST_CASE("hashes of states in blocks of 8 bits do not depend on the mesh") {
    const Hashed alone = train<sk::StateFormat::block8>(1, 1, sk::DynamicPolicy(sk::NoShard{}));
    CHECK(train<sk::StateFormat::block8>(3, 1, sk::DynamicPolicy(sk::FullShard{})).states == alone.states);
    CHECK(train<sk::StateFormat::block8>(4, 1, sk::DynamicPolicy(sk::HybridShard<2>{})).states == alone.states);
    CHECK(train<sk::StateFormat::block8>(4, 1, sk::DynamicPolicy(sk::HybridOptimizer<2>{})).states == alone.states);
}

TEST_CASE("a hash is the sum of its elements' digests, by their numbers in whole tensors") {
    sk::threads::run(sk::DeviceMesh<2, 2>{}, [](auto& rank) {
        Layer layer(rank, "layer", sk::Shapes<Net>{}, Layer::Options{sk::DynamicPolicy(sk::FullShard{})});
        sk::Model model{layer};
        model.initialize([](auto, auto, std::uint64_t i) { return 1.0 / static_cast<double>(i + 1); });
        std::uint64_t expected = 0;
        for (const sk::PlacedParameter& p : layer.parameters()) {
            std::vector<float> whole(p.shape.numel());
            layer.read_full(p.name, std::span(whole));
            sk::detail::Fnv seed;
            seed.add(p.name);
            for (std::size_t i = 0; i < whole.size(); ++i) {
                std::uint32_t bits = 0;
                std::memcpy(&bits, &whole[i], sizeof bits);
                expected += sk::detail::element_digest(seed.hash, i, bits);
            }
        }
        CHECK(sk::hash_values(model) == Hashes{{"layer", "parameter", expected}});
        // The same from what each rank of tp holds; what none of them splits counts once.
        std::uint64_t mine = 0;
        const auto window = layer.unshard();
        for (std::size_t p = 0; p < Net::count; ++p) {
            const sk::PlacedParameter& parameter = layer.parameters()[p];
            const bool counts = rank.rank() == 0 || (parameter.split_over_tp() && rank.rank() == 1);
            const auto view = window.view(p);
            const std::span<const float> part(view.data(), view.size());
            mine += counts ? sk::hash_of_part(parameter, part) : 0;
            CHECK_INVALID_ARGUMENT(sk::hash_of_part(parameter, part.first(part.size() - 1)),
                                   "hash_of_part: '" + std::string(parameter.name) + "' with " +
                                       std::to_string(part.size() - 1) + " elements, expected " +
                                       std::to_string(part.size()));
        }
        CHECK(sk::all_reduce_value(rank, mine) == expected);
    });
}

TEST_CASE("one element that changes on one rank changes its group's hash, and no other") {
    const sk::DynamicPolicy full(sk::FullShard{});
    const Hashed before = train(3, 1, full);
    const Hashed parameter = train(3, 1, full, [](auto& rank, auto& layers, auto& /*optimizer*/) {
        if (rank.rank() != 1) { return; }
        const sk::ShardInfo info = layers[1].shards().front();
        *const_cast<std::byte*>(static_cast<const std::byte*>(info.data)) ^= std::byte{1};
    });
    CHECK(parameter.values[0] == before.values[0]);
    CHECK(parameter.values[1].hash != before.values[1].hash);
    CHECK(parameter.states == before.states);
    const Hashed state = train(3, 1, full, [](auto& rank, auto& /*layers*/, auto& optimizer) {
        if (rank.rank() != 2) { return; }
        const sk::ShardInfo info = optimizer.shards().back();  // of the last group's last state
        *const_cast<std::byte*>(static_cast<const std::byte*>(info.data)) ^= std::byte{1};
    });
    CHECK(state.values == before.values);
    for (std::size_t i = 0; i < 3; ++i) { CHECK(state.states[i] == before.states[i]); }
    CHECK(state.states[3].hash != before.states[3].hash);
}

TEST_CASE("states of one name that two optimizers have of a group are one hash") {
    sk::threads::run(sk::DeviceMesh<2>{}, [](auto& rank) {
        Layer layer(rank, "layer", sk::Shapes<Net>{}, Layer::Options{sk::DynamicPolicy(sk::FullShard{})});
        sk::Model model{layer};
        const auto is_bias = [](auto, std::string_view name) { return name == "bias"; };
        const auto is_other = [](auto, std::string_view name) { return name != "bias"; };
        sk::AdamW biases{model, {}, {{.matches = is_other, .updated_by = sk::UpdatedBy::another}}};
        sk::AdamW others{model, {}, {{.matches = is_bias, .updated_by = sk::UpdatedBy::another}}};
        sk::CombinedOptimizer optimizer{model, {biases, others}};
        const Hashes hashes = sk::hash_values(optimizer);
        CHECK(hashes.size() == 2);
        sk::AdamW alone{model};
        CHECK(sk::hash_values(alone) == hashes);
    });
}

}  // namespace hash_values_test
