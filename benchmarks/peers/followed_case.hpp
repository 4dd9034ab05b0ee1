// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/follow/follow.hpp>
#include <shardkit/follow/record.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/schedule/passes.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>

#include "overhead_cases.hpp"

namespace benchmarks::peers {

/// A step of four groups that follows the schedule which was recorded of it, as it is or `improved`: gathers a window
/// ahead, reductions behind the next gradient buffer. And the same step of as many groups beside them that follows
/// none. A verb is an operation of the schedule.
class FollowedCase final : public OverheadCase {
  public:
    FollowedCase(shardkit::Rank& rank, std::size_t n, bool improved) : followed_(rank, n), plain_(rank, n) {
        shardkit::Schedule schedule = shardkit::schedule::record(followed_.model, [&] { followed_.step(); });
        if (improved) {
            const auto groups = shardkit::describe_groups(followed_.model);
            schedule = shardkit::schedule::overlap_reductions(shardkit::schedule::prefetch(schedule, groups), groups);
        }
        plain_.step();
        operations_ = schedule.size();
        following_.emplace(shardkit::schedule::follow(followed_.model, schedule));
    }
    std::size_t verbs() const override { return operations_; }
    void wrapped(std::size_t times) override {
        for (std::size_t i = 0; i < times; ++i) { followed_.step(); }
    }
    void bare(std::size_t times) override {
        for (std::size_t i = 0; i < times; ++i) { plain_.step(); }
    }
    std::uint64_t count_wrong() override {
        followed_.step();
        plain_.step();
        std::uint64_t wrong = 0;
        for (std::size_t l = 0; l < Model::layer_count; ++l) {
            const auto ours = followed_.layers[l].unshard();
            const auto theirs = plain_.layers[l].unshard();
            const auto values = ours[Weight{}];
            wrong += values[0] == 1.0F ? 1U : 0U;  // every step changes them
            for (std::size_t i = 0; i < values.size(); ++i) {
                const auto bits = [i](const auto& window) {
                    return std::bit_cast<std::uint32_t>(window[Weight{}][i]);
                };
                wrong += bits(ours) == bits(theirs) ? 0U : 1U;
            }
        }
        return wrong;
    }

  private:
    using Layer = shardkit::Sharded<Weight, shardkit::FullShard>;

    struct Model {
        static constexpr std::size_t layer_count = 4;

        Model(shardkit::Rank& rank, std::size_t n)
            : layers(make(rank, n)), model(shardkit::Model{layers}), optimizer(model, {.learning_rate = 0.001}) {}

        void step() {
            shardkit::Accumulation accumulation{model};
            for (Layer& layer : layers) {
                const auto window = layer.unshard();
                keep();
            }
            for (std::size_t l = layers.size(); l > 0; --l) {
                Layer& layer = layers[l - 1];
                auto window = layer.unshard();
                auto gradients = accumulation.gradients(layer);
                gradients[Weight{}][0] += 1;
                layer.reshard(std::move(window));
                accumulation.add(std::move(gradients));
            }
            optimizer.step(shardkit::reduce(std::move(accumulation), shardkit::mean));
        }

        std::vector<Layer> layers;
        shardkit::Model model;
        shardkit::SGD optimizer;

      private:
        static std::vector<Layer> make(shardkit::Rank& rank, std::size_t n) {
            std::vector<Layer> made;
            for (std::size_t l = 0; l < layer_count; ++l) {
                made.emplace_back(rank, "layers." + std::to_string(l),
                                  shardkit::Shapes<Weight>{shardkit::shape<Weight>(n)});
                made.back().initialize([](auto, auto, std::uint64_t) { return 1.0; });
            }
            return made;
        }
    };

    Model followed_;
    Model plain_;
    std::size_t operations_ = 0;
    std::optional<shardkit::schedule::Following> following_;
};

}  // namespace benchmarks::peers
