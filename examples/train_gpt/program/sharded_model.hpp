// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/model.hpp>

#include "../model/parameters.hpp"
#include "decoded_block.hpp"
#include "expert_layers.hpp"
#include "group_options.hpp"

namespace train_gpt {

/// The GPT's parameters in sharded groups: every transformer block is one. Its policy comes from the command
/// line: a trainer that knows it says Sharded<Group, FullShard, Engine>. `Gather`: what gathers of the blocks carry.
template <class Engine, class ElementType, class Gather = ElementType>
class ShardedModel {
  public:
    using T = ElementType;
    static constexpr bool decodes = !std::is_same_v<T, Gather>;
    template <class Group>
    using Layer = sk::Sharded<Group, sk::DynamicPolicy, Engine>;
    using Block = sk::Sharded<BlockGroup<T>, sk::DynamicPolicy, Engine, sk::Precision<Gather, T>>;

    /// Collective over the mesh. Parameters are zero until `groups()` are initialized. `tokens`: of this rank's
    /// largest pass, which experts have memory for.
    ShardedModel(sk::Context<Engine>& context, const ModelConfig& config, const Split& split, std::size_t tokens,
                 const sk::DynamicPolicy& policy, sk::MasterWeights master = sk::MasterWeights::kept,
                 sk::GradientRelease release = sk::GradientRelease::never)
        : embedding(context, "embedding", embedding_shapes<T>(config),
                    group_options<EmbeddingGroup<T>>(policy, master, release)),
          head(context, "head", head_shapes<T>(config), group_options<HeadGroup<T>>(policy, master, release)) {
        // Places before groups: a vector that grew would move what an optimizer refers to.
        blocks.reserve(config.layers);
        for (std::size_t l = 0; l < config.layers; ++l) {
            blocks.emplace_back(context, "blocks." + std::to_string(l), block_shapes<T>(config),
                                group_options<BlockGroup<T>>(policy, master, release));
        }
        if (config.head == HeadKind::untied) {
            logits.emplace_back(context, "logits", logits_shapes<T>(config),
                                group_options<LogitsGroup<T>>(policy, master, release));
        }
        routers.reserve(config.layers);
        experts.reserve(config.layers);
        for (std::size_t l = 0; config.experts > 0 && l < config.layers; ++l) {
            const std::string number = std::to_string(l);
            routers.emplace_back(context, "routers." + number, router_shapes<T>(config),
                                 group_options<RouterGroup<T>>(policy, master, release));
            experts.emplace_back(context, "experts." + number, expert_shapes<T>(config),
                                 group_options<ExpertGroup<T>>(policy, master, release));
        }
        if (config.experts > 0) { expert_layers.emplace(context, config, split, tokens); }
        if constexpr (decodes) { decoded_ = DecodedBlock<T>(context, config); }
    }

    Layer<EmbeddingGroup<T>> embedding;
    std::vector<Block> blocks;
    Layer<HeadGroup<T>> head;
    std::vector<Layer<LogitsGroup<T>>> logits;  // one where the head is untied, else none

    std::vector<Layer<RouterGroup<T>>> routers;            // one for each block with experts
    std::vector<Layer<ExpertGroup<T>>> experts;            // likewise
    std::optional<ExpertLayers<Engine, T>> expert_layers;  // of them all
    double auxiliary = 0;                                  // what a pass multiplies its auxiliary loss by

    bool tied() const noexcept { return logits.empty(); }
    auto groups() { return sk::Model{embedding, blocks, head, logits, routers, experts}; }
    /// Returns the numbers in a block's window, whose codes are decoded where it has codes. One at a time.
    template <class Window>
    const auto& numbers(const Window& window) {
        if constexpr (decodes) {
            decoded_.decode(window);
            return decoded_;
        } else {
            return window;
        }
    }
    /// f(layer) for each of them in that order, with its type.
    template <class F>
    void for_each_layer(const F& f) {
        f(embedding);
        for (auto& block : blocks) { f(block); }
        f(head);
        for (auto& untied : logits) { f(untied); }
        for (auto& router : routers) { f(router); }
        for (auto& stack : experts) { f(stack); }
    }

  private:
    struct Nothing {};
    std::conditional_t<decodes, DecodedBlock<T>, Nothing> decoded_{};
};

}  // namespace train_gpt
