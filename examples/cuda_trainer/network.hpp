// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "../train_gpt/model/block_weights.hpp"
#include "../train_gpt/model/matrix.hpp"
#include "../train_gpt/program/data_order.hpp"
#include "job.hpp"
#include "options.hpp"

namespace cuda_trainer {

using train_gpt::BlockWeights, train_gpt::EmbeddingWeights, train_gpt::HeadWeights, train_gpt::Into;

/// The model's forward and backward pass, on raw device pointers and in the order of the stream. It holds the
/// activations of one batch; parameters and gradients are somebody else's. Compiled in network.cu, once for both
/// trainers.
class Network {
  public:
    Network(cudaStream_t stream, const train_gpt::ModelConfig& config, train_gpt::BatchShape batch);

    void embed(const EmbeddingWeights<const float*>& w, const Token* tokens);
    void block(std::size_t layer, const BlockWeights<const float*>& w);
    /// Both passes: *loss becomes the sum of the tokens' losses times `scale`, of which the gradients are.
    void head(const HeadWeights<const float*>& w, const HeadWeights<float*>& d, Into into, const Token* targets,
              double scale, double* loss);
    void block_backward(std::size_t layer, const BlockWeights<const float*>& w, const BlockWeights<float*>& d,
                        Into into);
    /// Adds to the gradients.
    void embed_backward(const Token* tokens, const EmbeddingWeights<float*>& d);

  private:
    struct OnDevice;
    std::shared_ptr<OnDevice> on_device_;
};

/// As a launch: the tokens of a step that this rank trains on, and those that follow them. Seed and step alone decide
/// which they are, so that ranks and microbatches share out the same sequences.
struct CopyTokens {
    train_gpt::DataOrder order;
    const Token* text;
    std::size_t step, rank, ranks;
    train_gpt::BatchShape batch;
    Token *tokens, *targets;

    constexpr void operator()(std::size_t i) const {
        const std::size_t sequence = i / batch.sequence;
        const std::size_t of_step = (sequence / batch.batch * ranks + rank) * batch.batch + sequence % batch.batch;
        const Token* const from = text + order.start(step, of_step) + i % batch.sequence;
        tokens[i] = from[0];
        targets[i] = from[1];
    }
};

/// The text on the device, and what this rank trains on in a step, at the same addresses in every step.
class Inputs {
  public:
    Inputs(const Options& options, const Job& job, const std::vector<Token>& text)
        : stream_(job.stream),
          batch_(options.pass(job.ranks)),
          text_(text.size(), stream_),
          tokens_(options.microbatches * batch_.tokens(), stream_),
          targets_(tokens_.size(), stream_),
          copy_{{{text_.data(), text.size()}, batch_.sequence, options.seed},
                text_.data(),
                0,
                job.rank,
                job.ranks,
                batch_,
                tokens_.data(),
                targets_.data()} {
        copy(stream_, text_.data(), text.data(), text.size());
    }

    /// In the order of the stream.
    void load(std::size_t step) {
        copy_.step = step;
        launch(stream_, tokens_.size(), copy_);
    }
    const Token* tokens(std::size_t microbatch) const { return tokens_.data() + microbatch * batch_.tokens(); }
    const Token* targets(std::size_t microbatch) const { return targets_.data() + microbatch * batch_.tokens(); }

  private:
    cudaStream_t stream_;
    train_gpt::BatchShape batch_;
    DeviceArray<Token> text_, tokens_, targets_;
    CopyTokens copy_;
};

/// The losses of all steps, on the device: of each microbatch the sum over its tokens, of all ranks.
class Losses {
  public:
    Losses(const Options& options, const Job& job)
        : stream_(job.stream),
          passes_(options.microbatches),
          tokens_(options.batch * options.model.sequence),
          sums_(options.steps * passes_, stream_) {}

    double* of(std::size_t step) const { return sums_.data() + step * passes_; }
    /// The means of steps over their tokens; returns when they are there.
    std::vector<double> means(std::size_t first, std::size_t count) const {
        std::vector<double> sums(count * passes_);
        copy(stream_, sums.data(), of(first), sums.size());
        std::vector<double> means(count);
        for (std::size_t i = 0; i < sums.size(); ++i) {
            means[i / passes_] += sums[i] / static_cast<double>(tokens_);
        }
        return means;
    }

  private:
    cudaStream_t stream_;
    std::size_t passes_, tokens_;
    DeviceArray<double> sums_;
};

}  // namespace cuda_trainer
