// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/reduce.hpp>

namespace sk = shardkit;

namespace adopted_norm_test {

namespace {

// Sizes that no alignment divides, one of several blocks of a norm, and one that is aligned by itself.
struct First : sk::Param<"first", float, 5003> {};
struct Second : sk::Param<"second", float, 37> {};
struct Third : sk::Param<"third", float, 64> {};
struct Fourth : sk::Param<"fourth", float, 9001> {};
using Group = sk::Params<First, Second, Third, Fourth>;
constexpr std::size_t sizes[] = {5003, 37, 64, 9001};

double value(std::uint64_t seed) {
    const std::uint64_t mixed = (seed + 1) * 0x9e3779b97f4a7c15ULL;
    return static_cast<double>(mixed >> 40U) / 16777216.0 - 0.5;
}

struct Trained {
    std::vector<double> norms;
    std::vector<float> values;
    bool operator==(const Trained&) const = default;
};

/// Three clipped steps of AdamW.
template <class Layer>
Trained train(Layer& layer) {
    layer.initialize(
        [](std::string_view, std::string_view name, std::uint64_t i) { return value(i * 7 + name.size()); });
    sk::Model model{layer};
    sk::AdamW optimizer{model, {.learning_rate = 0.125}};
    Trained trained;
    for (std::uint64_t step = 0; step < 3; ++step) {
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        for (std::size_t p = 0; p < 4; ++p) {
            for (std::size_t i = 0; i < sizes[p]; ++i) {
                gradients.view(p).data()[i] = static_cast<float>(value(i * 31 + 1000003 * p + step));
            }
        }
        accumulation.add(std::move(gradients));
        auto reduced = sk::reduce(std::move(accumulation), sk::sum);
        const auto norm = sk::global_norm(reduced);
        trained.norms.push_back(norm.value());
        optimizer.step(std::move(reduced), sk::clip(norm, 1));
    }
    const auto window = layer.unshard();
    for (std::size_t p = 0; p < 4; ++p) {
        const auto view = window.view(p);
        trained.values.insert(trained.values.end(), view.data(), view.data() + view.size());
    }
    return trained;
}

}  // namespace

TEST_CASE(
    "several tensors, clipped, each in its default layout: adopted memory, own memory and FullShard, same bits") {
    for (const std::size_t world : {1U, 2U, 3U}) {
        CAPTURE(world);
        sk::threads::run(sk::DeviceMesh{world}, [&](auto& rank) {
            using Layer = sk::Sharded<Group, sk::DynamicPolicy, sk::Precision<float>>;
            const sk::DynamicPolicy no_shard{sk::NoShard{}};
            std::vector<float> parameters(5003 + 37 + 64 + 9001);
            std::vector<float> gradients(parameters.size());
            auto mine = Layer::adopt(rank, "layer", {}, {parameters, gradients},
                                     {.policy = no_shard, .packing = sk::Packing::exact});
            Layer own(rank, "layer", {}, {.policy = no_shard});
            Layer sharded(rank, "layer", {}, {.policy = sk::DynamicPolicy(sk::FullShard{})});
            const Trained expected = train(own);
            CHECK(expected.norms[0] > 1);
            CHECK(train(mine) == expected);
            CHECK(train(sharded) == expected);
        });
    }
}

TEST_CASE("where the optimizer is sharded: the same bits as own memory of the same packing") {
    sk::threads::run(sk::DeviceMesh<3>{}, [&](auto& rank) {
        using Layer = sk::Sharded<Group, sk::DynamicPolicy, sk::Precision<float>>;
        for (const sk::Packing packing : {sk::Packing::packed, sk::Packing::aligned}) {
            const typename Layer::Options options{.policy = sk::DynamicPolicy(sk::ShardOptimizer{}),
                                                  .packing = packing};
            std::vector<float> parameters(Layer::buffer_numel(rank, "layer", {}, options));
            auto mine = Layer::adopt(rank, "layer", {}, {parameters, {}}, options);
            Layer own(rank, "layer", {}, options);
            CHECK(train(mine) == train(own));
        }
    });
}

}  // namespace adopted_norm_test
