// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/local_shards.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>

namespace benchmarks::peers {

/// What all sides of the comparison of AdamW begin with. Exact in fp64, and so the same wherever it is computed.
struct AdamWNumbers {
    static float parameter(std::uint64_t i) { return static_cast<float>(value(i, 2654435761U)); }
    static float gradient(std::uint64_t i) { return static_cast<float>(0.01 * value(i, 2246822519U)); }

  private:
    /// In [-0.5, 0.5).
    static double value(std::uint64_t i, std::uint64_t factor) {
        return static_cast<double>((i * factor + 1) & 0xffffffffU) * 0x1p-32 - 0.5;
    }
};

/// The library's AdamW on a parameter of n elements, whose gradient stays what it is.
class LibraryAdamW {
    struct Values : shardkit::Param<"values", float, shardkit::dynamic> {};
    using Layer = shardkit::Sharded<Values, shardkit::NoShard>;
    using Model = decltype(shardkit::Model{std::declval<Layer&>()});
    using Optimizer = decltype(shardkit::AdamW{std::declval<Model&>(), shardkit::AdamWOptions{}});

  public:
    LibraryAdamW(shardkit::Rank& rank, std::size_t n)
        : layer_(rank, "layer", {shardkit::shape<Values>(n)}),
          model_(shardkit::Model{layer_}),
          optimizer_(model_, {}) {
        layer_.initialize(
            [](std::string_view, std::string_view, std::uint64_t i) { return AdamWNumbers::parameter(i); });
        const std::span<float> gradient = shardkit::gradient_shard(layer_);
        for (std::size_t i = 0; i < gradient.size(); ++i) { gradient[i] = i < n ? AdamWNumbers::gradient(i) : 0.0F; }
    }
    void step() { optimizer_.step(shardkit::assume_reduced(model_)); }
    std::vector<float> parameters() {
        std::vector<float> values(layer_.parameters()[0].shape.numel());
        layer_.read_full(Values{}, std::span<float>(values));
        return values;
    }

  private:
    Layer layer_;
    Model model_;
    Optimizer optimizer_;
};

}  // namespace benchmarks::peers
