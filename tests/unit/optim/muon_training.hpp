// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/follow/follow.hpp>
#include <shardkit/follow/record.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/muon/host_products.hpp>
#include <shardkit/muon/matrix_optimizer.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/schedule/dry_step.hpp>
#include <shardkit/sharded/sharded.hpp>

/// A few steps of Muon on any engine, with the same gradients whatever the mesh.
namespace muon_training {

namespace sk = shardkit;

using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

inline const sk::DynamicPolicy policies[] = {
    sk::DynamicPolicy(sk::NoShard{}),        sk::DynamicPolicy(sk::ShardOptimizer{}),
    sk::DynamicPolicy(sk::ShardGradOp{}),    sk::DynamicPolicy(sk::FullShard{}),
    sk::DynamicPolicy(sk::HybridShard<2>{}), sk::DynamicPolicy(sk::HybridOptimizer<2>{})};

/// The user's kernel.
struct GiveGradient {
    float* to;
    std::size_t n;
    std::size_t seed;

    constexpr void operator()() const {
        for (std::size_t i = 0; i < n; ++i) { to[i] = static_cast<float>((i * i + seed) % 11) - 5; }
    }
};

/// `make(model)`: an optimizer; `submit(stream, work)`: how the user's kernels run on this engine.
template <class Rank, class Make, class Submit>
std::vector<float> train_with(Rank& rank, const sk::DynamicPolicy& policy, const Make& make, const Submit& submit) {
    using List = sk::TensorList<float>;
    using Layer = sk::Sharded<List, sk::DynamicPolicy>;
    const std::vector<std::pair<std::string, std::size_t>> sizes{{"wide", 24}, {"bias", 5}, {"square", 25}};
    std::vector<Layer> layers;
    for (const char* path : {"a", "b", "c"}) {
        layers.emplace_back(rank, path, List{{"wide", {3, 8}}, {"bias", {5}}, {"square", {5, 5}}},
                            typename Layer::Options{policy});
    }
    sk::Model model{layers};
    model.initialize([](auto, auto, auto i) { return 1.0 / static_cast<double>(i + 2); });
    auto optimizer = make(model);
    for (int step = 0; step < 3; ++step) {
        sk::Accumulation accumulation{model};
        for (std::size_t l = 0; l < layers.size(); ++l) {
            auto gradients = accumulation.gradients(layers[l]);
            for (const auto& [name, size] : sizes) {
                float* const gradient = gradients.view(name).data();
                if (rank.rank() != 0) { continue; }
                submit(rank.compute_stream(), GiveGradient{gradient, size, l + static_cast<std::size_t>(step)});
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

template <class Rank, class Products, class Submit>
std::vector<float> train(Rank& rank, const sk::DynamicPolicy& policy, const Products& products,
                         const Submit& submit) {
    const auto muon = [&](auto& model) { return sk::Muon{model, products, sk::MuonOptions{.learning_rate = 0.1}}; };
    return train_with(rank, policy, muon, submit);
}

/// Steps of thin matrices that travel in four batches: the acts on batches as recorded, and in the order that is
/// followed from the second step on, and what becomes of the matrices.
struct InBatches {
    std::vector<sk::schedule::Op> recorded;
    std::vector<float> values;
};
template <class Rank, class Products, class Submit>
InBatches train_in_batches(Rank& rank, const Products& products, const Submit& submit, bool one_by_one) {
    using List = sk::TensorList<float>;
    constexpr std::size_t columns = 90'000;
    std::vector<sk::Sharded<List, sk::FullShard>> layers;
    for (const char* path : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
        layers.emplace_back(rank, path, List{{"thin", {2, columns}}});
    }
    sk::Model model{layers};
    model.initialize([](auto, auto, auto i) { return 1.0 / static_cast<double>(i + 2); });
    sk::rules::MatrixOptimizer<sk::rules::MuonRule> optimizer{model, products, {.learning_rate = 0.1}};
    const auto step = [&](std::size_t number) {
        sk::Accumulation accumulation{model, 1};
        for (std::size_t l = 0; l < layers.size(); ++l) {
            auto gradients = accumulation.gradients(layers[l]);
            float* const gradient = gradients.view("thin").data();
            submit(rank.compute_stream(), GiveGradient{gradient, 2 * columns, l + number});
            accumulation.add(std::move(gradients));
        }
        optimizer.step(std::move(accumulation));
    };
    InBatches made;
    const sk::Schedule recorded = sk::schedule::record(model, [&] { step(0); });
    for (const sk::schedule::Op& op : recorded.ops()) {
        if (sk::schedule::is_of_batch(op.act)) { made.recorded.push_back(op); }
    }
    sk::Schedule followed;
    std::size_t next = 0;
    for (sk::schedule::Op op : recorded.ops()) {
        if (one_by_one && sk::schedule::is_of_batch(op.act)) {
            constexpr std::array acts{sk::schedule::Act::direct, sk::schedule::Act::to_owners,
                                      sk::schedule::Act::transform, sk::schedule::Act::from_owners,
                                      sk::schedule::Act::apply};
            op = {acts[next % 5], 0, static_cast<std::uint32_t>(next / 5)};
            ++next;
        }
        followed.add(op);
    }
    {
        const auto following = sk::schedule::follow(model, followed);
        for (const std::size_t number : {1U, 2U}) { step(number); }
    }
    std::vector<float> whole(2 * columns);
    for (auto& layer : layers) {
        layer.read_full("thin", whole);
        made.values.insert(made.values.end(), whole.begin(), whole.end());
    }
    return made;
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
