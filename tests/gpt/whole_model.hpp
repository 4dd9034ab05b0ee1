// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "../../examples/train_gpt/model/initialise.hpp"
#include "../../examples/train_gpt/model/parameters.hpp"
#include "../../examples/train_gpt/model/pass_instances.hpp"

namespace train_gpt::test {

template <class T>
struct Tensor {
    std::string path;
    std::string name;
    std::vector<T> values;
};

/// All tensors of a model in plain vectors, in the order of the groups; parameters or gradients.
template <class T>
class Tensors {
  public:
    explicit Tensors(const ModelConfig& config) : layers_(config.layers), head_(config.head) {
        add<EmbeddingGroup<T>>("embedding", embedding_shapes<T>(config));
        for (std::size_t l = 0; l < layers_; ++l) {
            add<BlockGroup<T>>("blocks." + std::to_string(l), block_shapes<T>(config));
        }
        add<HeadGroup<T>>("head", head_shapes<T>(config));
        if (head_ == HeadKind::untied) { add<LogitsGroup<T>>("logits", logits_shapes<T>(config)); }
    }

    template <class F>
    void fill(F f) {
        for (auto& tensor : all) {
            for (std::size_t i = 0; i < tensor.values.size(); ++i) {
                using A = Arithmetic<T>;
                tensor.values[i] = static_cast<T>(static_cast<A>(f(tensor.path, tensor.name, i)));
            }
        }
    }

    template <class P>
    EmbeddingWeights<P> embedding() {
        return {at(0), at(1)};
    }
    template <class P>
    BlockWeights<P> block(std::size_t l) {
        const std::size_t first = 2 + 12 * l;
        return [&]<std::size_t... I>(std::index_sequence<I...>) { return BlockWeights<P>{at(first + I)...}; }
        (std::make_index_sequence<12>{});
    }
    template <class P>
    HeadWeights<P> head() {
        const std::size_t first = 2 + 12 * layers_;
        return {at(first), at(first + 1), head_ == HeadKind::tied ? at(0) : at(first + 2)};
    }

    std::vector<Tensor<T>> all;

  private:
    template <class Group>
    void add(const std::string& path, const sk::Shapes<Group>& shapes) {
        for (std::size_t i = 0; i < Group::count; ++i) {
            all.push_back({path, std::string(Group::names[i]), std::vector<T>(shapes[i].numel())});
        }
    }
    T* at(std::size_t i) { return all[i].values.data(); }

    std::size_t layers_;
    HeadKind head_;
};

/// A pass with memory of its own, guarded on both sides.
template <class T>
class OwnedPass {
  public:
    static constexpr std::size_t guard = 4 * Arena::alignment;
    static constexpr std::byte canary{0xa5};

    OwnedPass(const ModelConfig& config, BatchShape capacity)
        : memory_(new (std::align_val_t{Arena::alignment})
                      std::byte[Pass<T>::bytes(config, {}, capacity) + 2 * guard]),
          bytes_(Pass<T>::bytes(config, {}, capacity)),
          arena_(memory_ + guard, bytes_),
          pass_((std::fill_n(memory_, bytes_ + 2 * guard, canary), config), {}, capacity, links_, arena_) {}
    OwnedPass(const OwnedPass&) = delete;
    OwnedPass& operator=(const OwnedPass&) = delete;
    ~OwnedPass() { ::operator delete[](memory_, std::align_val_t{Arena::alignment}); }

    Pass<T>& operator*() { return pass_; }
    Pass<T>* operator->() { return &pass_; }
    std::size_t bytes() const { return bytes_; }
    std::size_t used() const { return arena_.used(); }
    bool guards_intact() const {
        const auto whole = [](const std::byte* p) {
            return std::count(p, p + guard, canary) == std::ptrdiff_t{guard};
        };
        return whole(memory_) && whole(memory_ + guard + bytes_);
    }

  private:
    std::byte* memory_;
    std::size_t bytes_;
    Arena arena_;
    Links<Arithmetic<T>> links_;
    Pass<T> pass_;
};

/// A loss summed over the tokens of a pass.
struct SummedLoss {
    double sum;
    std::size_t tokens;

    double mean() const { return sum / static_cast<double>(tokens); }
};

template <class T>
SummedLoss forward(Pass<T>& pass, const ModelConfig& config, BatchShape batch, Tensors<T>& weights,
                   const Token* tokens, const Token* targets, double scale = 1.0) {
    pass.embed(batch, weights.template embedding<const T*>(), tokens);
    for (std::size_t l = 0; l < config.layers; ++l) { pass.block(l, weights.template block<const T*>(l)); }
    pass.head(weights.template head<const T*>());
    double loss = 0;
    pass.loss(targets, scale, &loss);
    return {loss, batch.tokens()};
}

/// Follows forward(); adds to `gradients`.
template <class T>
void backward(Pass<T>& pass, const ModelConfig& config, Tensors<T>& weights, const Token* tokens,
              Tensors<T>& gradients) {
    pass.head_backward(weights.template head<const T*>(), gradients.template head<T*>(), train_gpt::Into::add);
    for (std::size_t l = config.layers; l > 0; --l) {
        pass.block_backward(l - 1, weights.template block<const T*>(l - 1), gradients.template block<T*>(l - 1),
                            train_gpt::Into::add);
    }
    pass.embed_backward(tokens, gradients.template embedding<T*>());
}

/// Bytes 0..255 without a pattern.
inline std::vector<Token> random_bytes(std::size_t count, std::uint64_t seed) {
    std::vector<Token> bytes(count);
    for (std::size_t i = 0; i < count; ++i) { bytes[i] = static_cast<std::uint8_t>(mix(seed + i) >> 32U); }
    return bytes;
}

}  // namespace train_gpt::test
