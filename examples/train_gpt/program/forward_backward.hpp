// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include <shardkit/step/accumulation.hpp>

#include "../model/block_weights.hpp"
#include "../model/config.hpp"
#include "../model/head.hpp"
#include "../model/parameters.hpp"

namespace train_gpt {

/// Embedding and blocks, each gathered just before it is used and released just after.
template <class Model, class Pass, class T = typename Model::T>
void forward_blocks(Model& model, Pass& pass, BatchShape batch, const Token* tokens) {
    {
        auto w = model.embedding.unshard();
        pass.embed(batch, {w[Wte<T>{}], w[Wpe<T>{}]}, tokens);
        model.embedding.reshard(std::move(w));
    }
    for (std::size_t l = 0; l < model.blocks.size(); ++l) {
        auto w = model.blocks[l].unshard();
        pass.block(l, block_weights<const T*, T>(w));
        model.blocks[l].reshard(std::move(w));
        if (model.experts.empty()) { continue; }
        auto router = model.routers[l].unshard();
        auto experts = model.experts[l].unshard();
        model.expert_layers->forward(l, pass.outer(), router, experts, pass.behind(l));
        model.experts[l].reshard(std::move(experts));
        model.routers[l].reshard(std::move(router));
    }
}

/// f(weights) while the head's windows are open; a tied head reads the token embedding's.
template <class Model, class F, class T = typename Model::T>
void with_head(Model& model, F f) {
    auto norm = model.head.unshard();
    const auto call = [&](const T* logits) {
        f(HeadWeights<const T*>{norm[NormWeight<T>{}], norm[NormBias<T>{}], logits});
    };
    if (model.tied()) {
        auto w = model.embedding.unshard();
        call(w[Wte<T>{}]);
        model.embedding.reshard(std::move(w));
    } else {
        auto w = model.logits.front().unshard();
        call(w[LogitsWeight<T>{}]);
        model.logits.front().reshard(std::move(w));
    }
    model.head.reshard(std::move(norm));
}

/// Returns what this microbatch does to the gradient of a parameter that is an OverwrittenGradient.
template <class Gradients, class P>
Into overwritten(const Gradients& gradients, const P& parameter) {
    return gradients.overwrites(parameter) ? Into::overwrite : Into::add;
}

/// Forward and backward pass of one microbatch. The gradients are those of the loss summed over its tokens;
/// whoever reduces them divides by the tokens of all ranks and microbatches; *loss becomes that sum. `seen(layer,
/// gradients)` is called for each group before its gradients are added.
template <class Model, class Accumulation, class Pass, class Seen, class T = typename Model::T>
void forward_backward(Model& model, Accumulation& accumulation, Pass& pass, BatchShape batch, const Token* tokens,
                      const Token* targets, double* loss, const Seen& seen) {
    const auto add = [&](auto& layer, auto&& gradients) {
        seen(layer, gradients);
        accumulation.add(std::forward<decltype(gradients)>(gradients));
    };
    forward_blocks(model, pass, batch, tokens);

    // A tied head adds to the token embedding's gradient, so that handle stays from here to the embedding's
    // own backward pass; otherwise it is taken there.
    std::optional<decltype(accumulation.gradients(model.embedding))> d_embedding;
    auto d_head = accumulation.gradients(model.head);
    // Added once its window is closed: an update may follow.
    std::optional<decltype(accumulation.gradients(model.logits.front()))> d_logits;
    with_head(model, [&](const HeadWeights<const T*>& w) {
        const auto backward = [&](T* d_weights, Into into) {
            pass.head(w);
            pass.loss(targets, 1.0, loss);
            pass.head_backward(w, {d_head[NormWeight<T>{}], d_head[NormBias<T>{}], d_weights}, into);
        };
        if (model.tied()) {
            d_embedding.emplace(accumulation.gradients(model.embedding));
            backward((*d_embedding)[Wte<T>{}], Into::add);
        } else {
            d_logits.emplace(accumulation.gradients(model.logits.front()));
            const Into into = overwritten(*d_logits, LogitsWeight<T>{});
            backward((*d_logits)[LogitsWeight<T>{}], into);
        }
    });
    if (d_logits) { add(model.logits.front(), std::move(*d_logits)); }
    add(model.head, std::move(d_head));

    for (std::size_t l = model.blocks.size(); l > 0; --l) {
        if (!model.experts.empty()) {
            auto router = model.routers[l - 1].unshard();
            auto experts = model.experts[l - 1].unshard();
            auto d_router = accumulation.gradients(model.routers[l - 1]);
            auto d_experts = accumulation.gradients(model.experts[l - 1]);
            model.expert_layers->backward(l - 1, static_cast<Arithmetic<T>>(model.auxiliary), router, experts,
                                          d_router, d_experts, pass.gradient());
            model.experts[l - 1].reshard(std::move(experts));
            model.routers[l - 1].reshard(std::move(router));
            // Not seen: of the slices of all ranks that share them.
            accumulation.add(std::move(d_experts));
            add(model.routers[l - 1], std::move(d_router));
        }
        auto& block = model.blocks[l - 1];
        auto w = block.unshard();
        auto d = accumulation.gradients(block);
        const Into into = overwritten(d, QkvWeight<T>{});  // and with it the block's other weights
        pass.block_backward(l - 1, block_weights<const T*, T>(w), block_weights<T*, T>(d), into);
        block.reshard(std::move(w));
        add(block, std::move(d));
    }

    if (!d_embedding) { d_embedding.emplace(accumulation.gradients(model.embedding)); }
    pass.embed_backward(tokens, {(*d_embedding)[Wte<T>{}], (*d_embedding)[Wpe<T>{}]});
    add(model.embedding, std::move(*d_embedding));
}

}  // namespace train_gpt
