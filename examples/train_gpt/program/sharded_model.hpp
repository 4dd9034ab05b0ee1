// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/model.hpp>

#include "../model/parameters.hpp"
#include "../model/place.hpp"
#include "decoded_block.hpp"
#include "engine_links.hpp"
#include "expert_layers.hpp"
#include "group_options.hpp"
#include "options.hpp"

namespace train_gpt {

/// The GPT's parameters in sharded groups: every transformer block is one, and where the configuration has experts,
/// a layer of them behind each block two. Their policy comes from the command line: a trainer that knows it says
/// Sharded<Group, FullShard, Engine>. `Place`: where experts compute; `Gather`: what gathers of the blocks carry.
template <class EngineType, class ElementType, class Place = HostPlace, class Gather = ElementType>
class ShardedModel {
  public:
    using Engine = EngineType;
    using T = ElementType;
    static constexpr bool decodes = !std::is_same_v<T, Gather>;
    template <class Group>
    using Layer = sk::Sharded<Group, sk::DynamicPolicy, Engine>;
    using Block = sk::Sharded<BlockGroup<T>, sk::DynamicPolicy, Engine, sk::Precision<Gather, T>>;

    /// Collective over the mesh. Parameters are zero until `groups()` are initialized. Experts have memory for this
    /// rank's largest pass.
    ShardedModel(sk::Context<Engine>& context, const Options& options, const Place& place = {})
        : embedding(context, "embedding", embedding_shapes<T>(options.model),
                    group_options<EmbeddingGroup<T>>(options)),
          head(context, "head", head_shapes<T>(options.model), group_options<HeadGroup<T>>(options)) {
        const ModelConfig& config = options.model;
        // Places before groups: a vector that grew would move what an optimizer refers to.
        blocks.reserve(config.layers);
        routers.reserve(config.layers);
        experts.reserve(config.layers);
        for (std::size_t l = 0; l < config.layers; ++l) {
            blocks.emplace_back(context, "blocks." + std::to_string(l), block_shapes<T>(config),
                                group_options<BlockGroup<T>>(options));
        }
        if (config.head == HeadKind::untied) {
            logits.emplace_back(context, "logits", logits_shapes<T>(config), group_options<LogitsGroup<T>>(options));
        }
        for (std::size_t l = 0; config.experts > 0 && l < config.layers; ++l) {
            const std::string number = std::to_string(l);
            routers.emplace_back(context, "routers." + number, router_shapes<T>(config),
                                 group_options<RouterGroup<T>>(options));
            experts.emplace_back(context, "experts." + number, expert_shapes<T>(config),
                                 group_options<ExpertGroup<T>>(options));
        }
        if (config.experts > 0) {
            const Split split = split_of(context, options);
            expert_layers.emplace(context, config, split, split.local(options.pass_shape()).tokens(), place);
        }
        if constexpr (decodes) { decoded_ = DecodedBlock<T>(context, config); }
    }

    Layer<EmbeddingGroup<T>> embedding;
    std::vector<Block> blocks;
    Layer<HeadGroup<T>> head;
    std::vector<Layer<LogitsGroup<T>>> logits;                    // one where the head is untied, else none
    std::vector<Layer<RouterGroup<T>>> routers;                   // one for each block with experts
    std::vector<Layer<ExpertGroup<T>>> experts;                   // likewise
    std::optional<ExpertLayers<Engine, T, Place>> expert_layers;  // of them all
    double auxiliary = 0;                                         // what a pass multiplies its auxiliary loss by

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
