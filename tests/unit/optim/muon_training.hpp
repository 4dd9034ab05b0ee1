// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/matrix/host_products.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/muon.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/full_shard.hpp>
#include <shardkit/policy/hybrid_shard.hpp>
#include <shardkit/policy/no_shard.hpp>
#include <shardkit/policy/shard_grad_op.hpp>
#include <shardkit/policy/shard_optimizer.hpp>
#include <shardkit/sharded/sharded.hpp>

/// A few steps of Muon on any engine, with the same gradients whatever the mesh.
namespace muon_training {

namespace sk = shardkit;

using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

inline const sk::DynamicPolicy policies[] = {
    sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}), sk::DynamicPolicy(sk::ShardGradOp{}),
    sk::DynamicPolicy(sk::FullShard{}), sk::DynamicPolicy(sk::HybridShard<2>{})};

/// `submit(stream, work)`: how the user's kernels run on this engine.
template <class Rank, class Products, class Submit>
std::vector<float> train(Rank& rank, const sk::DynamicPolicy& policy, const Products& products,
                         const Submit& submit) {
    using Engine = sk::EngineOf<Rank>;
    using List = sk::TensorList<float>;
    using Layer = sk::Sharded<List, sk::DynamicPolicy, Engine>;
    const std::vector<std::pair<std::string, std::size_t>> sizes{{"wide", 24}, {"bias", 5}, {"square", 25}};
    std::vector<Layer> layers;
    for (const char* path : {"a", "b", "c"}) {
        layers.emplace_back(rank, path, List{{"wide", {3, 8}}, {"bias", {5}}, {"square", {5, 5}}},
                            typename Layer::Options{policy});
    }
    sk::Model model{layers};
    model.initialize([](auto, auto, auto i) { return 1.0 / static_cast<double>(i + 2); });
    sk::Muon optimizer{model, products, sk::MuonOptions{.learning_rate = 0.1}};
    for (int step = 0; step < 3; ++step) {
        sk::Accumulation accumulation{model};
        for (std::size_t l = 0; l < layers.size(); ++l) {
            auto gradients = accumulation.gradients(layers[l]);
            for (const auto& [name, size] : sizes) {
                float* const gradient = gradients.view(name).data();
                if (rank.rank() != 0) { continue; }
                submit(rank.compute_stream(), [gradient, n = size, seed = l + static_cast<std::size_t>(step)] {
                    for (std::size_t i = 0; i < n; ++i) { gradient[i] = static_cast<float>((i * i + seed) % 11) - 5; }
                });
            }
            accumulation.add(std::move(gradients));
        }
        optimizer.step(std::move(accumulation), {.divisor = sk::sum, .max_norm = 3});
    }
    std::vector<float> values;
    for (Layer& layer : layers) {
        for (const auto& [name, size] : sizes) {
            std::vector<float> whole(size);
            layer.read_full(name, whole);
            values.insert(values.end(), whole.begin(), whole.end());
        }
    }
    return values;
}

/// What one thread alone makes.
inline std::vector<float> expected() {
    std::vector<float> values;
    sk::threads::run(Mesh(1, 1, 1), [&](auto& rank) {
        values = train(rank, policies[3], sk::HostProducts{},
                       [](const auto& stream, const auto& work) { stream.submit(work); });
    });
    return values;
}

}  // namespace muon_training
