// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/schedule/dry_step.hpp>

#include "forward_backward.hpp"
#include "options.hpp"

// The trainer's own forward and backward pass over groups without memory: what it would do, as a schedule.

namespace train_gpt {

namespace sk = shardkit;

/// Stands where parameters and gradients would lie.
struct NoTensor {
    std::nullptr_t data() const noexcept { return nullptr; }
    operator std::nullptr_t() const noexcept { return nullptr; }
};
struct NoTensors {
    std::size_t group = 0;

    template <class P>
    NoTensor operator[](P) const noexcept {
        return {};
    }
    template <class P>
    bool overwrites(const P& /*parameter*/) const noexcept {
        return false;
    }
};

/// A group of a model that is told, verb by verb.
class DryLayer {
  public:
    DryLayer(sk::schedule::DryStep& step, std::size_t group) : step_(&step), group_(group) {}

    std::size_t group() const noexcept { return group_; }
    NoTensors unshard() {
        step_->unshard(group_);
        return {group_};
    }
    void reshard(NoTensors&& window) { step_->reshard(window.group); }

  private:
    sk::schedule::DryStep* step_;
    std::size_t group_;
};

/// Stands where experts would compute.
struct DryExperts {
    template <class... Given>
    void forward(const Given&...) const noexcept {}
    template <class... Given>
    void backward(const Given&...) const noexcept {}

    const DryExperts* operator->() const noexcept { return this; }
};

/// In the order of ShardedModel::groups().
template <class ElementType>
class DryModel {
  public:
    using T = ElementType;

    DryModel(sk::schedule::DryStep& step, const ModelConfig& config)
        : embedding(step, 0), head(step, 1 + config.layers) {
        for (std::size_t l = 0; l < config.layers; ++l) { blocks.emplace_back(step, 1 + l); }
        std::size_t next = 2 + config.layers;
        if (config.head == HeadKind::untied) { logits.emplace_back(step, next++); }
        for (std::size_t l = 0; config.experts > 0 && l < config.layers; ++l) {
            routers.emplace_back(step, next + l);
            experts.emplace_back(step, next + config.layers + l);
        }
    }

    DryLayer embedding;
    std::vector<DryLayer> blocks;
    DryLayer head;
    std::vector<DryLayer> logits;
    std::vector<DryLayer> routers;
    std::vector<DryLayer> experts;
    DryExperts expert_layers;
    double auxiliary = 0;

    bool tied() const noexcept { return logits.empty(); }
};

class DryAccumulation {
  public:
    explicit DryAccumulation(sk::schedule::DryStep& step) : step_(step) {}

    NoTensors gradients(const DryLayer& layer) {
        step_.gradients(layer.group());
        return {layer.group()};
    }
    void add(NoTensors&& gradients) { step_.add(gradients.group); }

  private:
    sk::schedule::DryStep& step_;
};

/// The verbs of Pass; computes nothing.
template <class T>
struct DryPass {
    void embed(BatchShape, const EmbeddingWeights<const T*>&, const Token*) {}
    void block(std::size_t, const BlockWeights<const T*>&) {}
    void head(const HeadWeights<const T*>&) {}
    void loss(const Token*, double, double*) {}
    void head_backward(const HeadWeights<const T*>&, const HeadWeights<T*>&, Into) {}
    void block_backward(std::size_t, const BlockWeights<const T*>&, const BlockWeights<T*>&, Into) {}
    void embed_backward(const Token*, const EmbeddingWeights<T*>&) {}
    std::size_t outer() const noexcept { return 0; }
    std::nullptr_t behind(std::size_t) const noexcept { return nullptr; }
    std::nullptr_t gradient() const noexcept { return nullptr; }
};

/// The step that the trainer makes, of groups in the order of ShardedModel::groups(); `batches`: of whole matrices.
template <class T>
sk::Schedule dry_step(const Options& options, std::span<const sk::planner::GroupDescription> groups,
                      std::size_t batches) {
    sk::schedule::DryStep step(groups, options.microbatches);
    DryModel<T> model(step, options.model);
    DryAccumulation accumulation(step);
    DryPass<T> pass;
    for (std::size_t m = 0; m < options.microbatches; ++m) {
        forward_backward(model, accumulation, pass, {}, nullptr, nullptr, nullptr);
    }
    return step.reduce().global_norm().matrices(batches).step().schedule();
}

}  // namespace train_gpt
