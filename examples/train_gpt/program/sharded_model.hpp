// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/step/model.hpp>

#include "decoded_block.hpp"
#include "dense_model.hpp"
#include "engine_links.hpp"
#include "expert_layers.hpp"

namespace train_gpt {

/// The same with a layer of experts behind each block, where the configuration has some.
template <class EngineType, class ElementType, class Gather = ElementType>
class ShardedModel : public DenseModel<EngineType, ElementType, Gather> {
    using Dense = DenseModel<EngineType, ElementType, Gather>;

  public:
    using Engine = EngineType;
    using T = ElementType;
    static constexpr bool decodes = !std::is_same_v<T, Gather>;
    template <class Group>
    using Layer = typename Dense::template Layer<Group>;

    /// Collective over the mesh. Experts have memory for this rank's largest pass.
    ShardedModel(sk::Context<Engine>& context, const Options& options) : Dense(context, options) {
        const ModelConfig& config = options.model;
        routers.reserve(config.layers);
        experts.reserve(config.layers);
        for (std::size_t l = 0; config.experts > 0 && l < config.layers; ++l) {
            const std::string number = std::to_string(l);
            routers.emplace_back(context, "routers." + number, router_shapes<T>(config),
                                 group_options<RouterGroup<T>>(options));
            experts.emplace_back(context, "experts." + number, expert_shapes<T>(config),
                                 group_options<ExpertGroup<T>>(options));
        }
        if (config.experts > 0) {
            const Split split = split_of(context, options);
            expert_layers.emplace(context, config, split, split.local(options.pass_shape()).tokens());
        }
        if constexpr (decodes) { decoded_ = DecodedBlock<T>(context, config); }
    }

    std::vector<Layer<RouterGroup<T>>> routers;            // one for each block with experts
    std::vector<Layer<ExpertGroup<T>>> experts;            // likewise
    std::optional<ExpertLayers<Engine, T>> expert_layers;  // of them all
    double auxiliary = 0;                                  // what a pass multiplies its auxiliary loss by

    auto groups() { return sk::Model{this->embedding, this->blocks, this->head, this->logits, routers, experts}; }
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
        Dense::for_each_layer(f);
        for (auto& router : routers) { f(router); }
        for (auto& stack : experts) { f(stack); }
    }

  private:
    struct Nothing {};
    std::conditional_t<decodes, DecodedBlock<T>, Nothing> decoded_{};
};

}  // namespace train_gpt
