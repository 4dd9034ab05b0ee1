// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/core/codes.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>

/// A few steps of groups whose gathers carry codes, on any engine, with the same gradients whatever the mesh.
namespace coded_training {

namespace sk = shardkit;

using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;
using List = sk::TensorList<float>;
template <class Code>
using Precision = sk::Precision<Code, float>;
template <class Code>
using Layer = sk::Sharded<List, sk::DynamicPolicy, Precision<Code>>;

inline const sk::DynamicPolicy policies[] = {
    sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}), sk::DynamicPolicy(sk::ShardGradOp{}),
    sk::DynamicPolicy(sk::FullShard{}), sk::DynamicPolicy(sk::HybridShard<2>{})};
/// Sizes that divide nothing: the last block of each is a part of one, and some ranks have nothing of most.
inline const std::vector<std::pair<std::string, std::size_t>> sizes{{"weight", 67 * 13}, {"bias", 33}, {"one", 1}};

inline List tensors() { return {{"weight", {67, 13}}, {"bias", {33}}, {"one", {1}}}; }

/// Values of very different sizes beside each other, so that scales matter.
inline double initial(std::size_t i) {
    return (i % 2 == 0 ? 0.01 : -0.013) * static_cast<double>(i % 31) * (i % 64 < 32 ? 1e-3 : 1.0);
}

/// The gradient of an element, on data rank 0 alone: the sum has the same bits on any number of ranks.
constexpr float gradient(std::size_t i, std::size_t step) {
    return static_cast<float>((i * i + 3 * step) % 11) - 5.0F;
}
/// The user's kernel.
struct GiveGradient {
    float* to;
    std::size_t n;
    std::size_t seed;

    constexpr void operator()() const {
        for (std::size_t i = 0; i < n; ++i) { to[i] = gradient(i, seed); }
    }
};

/// All values that windows show after some steps. `submit(stream, work)`: how the user's kernels run on this engine.
template <class Code, class Rank, class Submit>
std::vector<float> train(Rank& rank, const sk::DynamicPolicy& policy, const Submit& submit) {
    std::vector<Layer<Code>> layers;
    for (const char* path : {"a", "b"}) {
        layers.emplace_back(rank, path, tensors(), typename Layer<Code>::Options{policy});
    }
    sk::Model model{layers};
    model.initialize([](auto, auto, auto i) { return initial(i); });
    sk::AdamW optimizer{model, {.learning_rate = 0.02}};
    std::vector<float> values;
    for (std::size_t step = 0; step < 3; ++step) {
        sk::Accumulation accumulation{model, 2};
        for (std::size_t l = 0; l < layers.size(); ++l) {
            for (int microbatch = 0; microbatch < 2; ++microbatch) {
                const auto window = layers[l].unshard();
                auto gradients = accumulation.gradients(layers[l]);
                for (const auto& [name, size] : sizes) {
                    float* const to = gradients.view(name).data();
                    if (rank.rank() != 0 || microbatch != 0) { continue; }
                    submit(rank.compute_stream(), GiveGradient{to, size, l + step});
                }
                accumulation.add(std::move(gradients));
            }
        }
        optimizer.step(std::move(accumulation), {.divisor = sk::sum, .max_norm = 30});
        for (auto& layer : layers) {
            for (const auto& [name, size] : sizes) {
                std::vector<float> whole(size);
                layer.read_full(name, whole);
                values.insert(values.end(), whole.begin(), whole.end());
            }
        }
    }
    return values;
}
/// The same of one rank alone.
template <class Code>
std::vector<float> expected() {
    std::vector<float> values;
    sk::self::run(Mesh(1, 1, 1), [&](auto& rank) {
        values = train<Code>(rank, sk::DynamicPolicy(sk::NoShard{}),
                             [](const auto& stream, const auto& work) { stream.submit(work); });
    });
    return values;
}

}  // namespace coded_training
