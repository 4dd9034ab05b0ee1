// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_state.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/param/params.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/reduce.hpp>

namespace benchmarks::checkpoints {

/// Groups as a GPT's blocks: large matrices, and vectors beside them.
struct Weight : shardkit::Param<"weight", float, shardkit::dynamic, shardkit::dynamic> {};
struct Bias : shardkit::Param<"bias", float, shardkit::dynamic> {};
using Block = shardkit::Params<Weight, Bias>;

class Model {
  public:
    using Layer = shardkit::Sharded<Block, shardkit::DynamicPolicy>;
    static constexpr std::size_t blocks = 12;

    Model(shardkit::Rank& rank, const shardkit::DynamicPolicy& policy, std::uint64_t elements)
        : layers_(make(rank, policy, elements)), optimizer_(groups()), state_(groups(), optimizer_) {}

    /// Values that differ, and a step, so that no state is zero.
    void begin() {
        for (Layer& layer : layers_) {
            layer.initialize([](std::string_view path, std::string_view, std::uint64_t i) {
                return 1e-3 * static_cast<double>((i * 7 + static_cast<unsigned char>(path.back())) % 1009);
            });
        }
        shardkit::Accumulation accumulation{groups()};
        for (Layer& layer : layers_) {
            auto gradients = accumulation.gradients(layer);
            for (std::size_t p = 0; p < Block::count; ++p) {
                auto view = gradients.view(p);
                for (std::size_t i = 0; i < view.size(); ++i) { view.data()[i] = static_cast<float>(i % 251); }
            }
            accumulation.add(std::move(gradients));
        }
        optimizer_.step(shardkit::reduce(std::move(accumulation), shardkit::mean));
    }

    std::uint64_t numel() const {
        std::uint64_t sum = 0;
        for (const Layer& layer : layers_) {
            for (const auto& parameter : layer.parameters()) { sum += parameter.shape.numel(); }
        }
        return sum;
    }
    shardkit::checkpoint::State& state() { return state_; }
    /// Everything that this rank holds.
    std::vector<shardkit::ShardInfo> shards() {
        std::vector<shardkit::ShardInfo> all = optimizer_.shards();
        for (const Layer& layer : layers_) {
            for (shardkit::ShardInfo& shard : layer.shards()) { all.push_back(std::move(shard)); }
        }
        return all;
    }
    /// Without the optimizer.
    shardkit::checkpoint::State parameters_alone() { return shardkit::checkpoint::State{groups()}; }

  private:
    static std::vector<Layer> make(shardkit::Rank& rank, const shardkit::DynamicPolicy& policy,
                                   std::uint64_t elements) {
        constexpr std::size_t columns = 64;
        const auto rows = static_cast<std::size_t>(std::max<std::uint64_t>(1, elements / blocks / columns));
        std::vector<Layer> layers;
        layers.reserve(blocks);
        for (std::size_t b = 0; b < blocks; ++b) {
            layers.emplace_back(
                rank, "blocks." + std::to_string(b),
                shardkit::Shapes<Block>{shardkit::shape<Weight>(rows, columns), shardkit::shape<Bias>(columns)},
                typename Layer::Options{policy});
        }
        return layers;
    }
    shardkit::Model groups() { return shardkit::Model{layers_}; }

    std::vector<Layer> layers_;
    shardkit::AdamW optimizer_;
    shardkit::checkpoint::State state_;
};

}  // namespace benchmarks::checkpoints
