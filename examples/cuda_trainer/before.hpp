// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "../train_gpt/model/initialise.hpp"
#include "network.hpp"

/// The trainer before: every rank holds everything in flat buffers, and gradients are all-reduced.
namespace cuda_trainer::before {

/// Pointers to all parameters, or to all gradients.
template <class P>
struct Weights {
    train_gpt::EmbeddingWeights<P> embedding;
    std::vector<train_gpt::BlockWeights<P>> blocks;
    train_gpt::HeadWeights<P> head;
};

/// As take(path, parameter, elements) gives them, in the order of memory.
template <class P, class Take>
Weights<P> lay_out(const train_gpt::ModelConfig& config, Take take) {
    const std::size_t c = config.width;
    Weights<P> weights{};
    weights.embedding = {take("embedding", "wte", config.vocabulary * c),
                         take("embedding", "wpe", config.sequence * c)};
    for (std::size_t l = 0; l < config.layers; ++l) {
        const std::string path = "blocks." + std::to_string(l);
        weights.blocks.push_back({take(path, "norm1_weight", c), take(path, "norm1_bias", c),
                                  take(path, "norm2_weight", c), take(path, "norm2_bias", c),
                                  take(path, "projection_bias", c), take(path, "down_bias", c),
                                  take(path, "qkv_weight", 3 * c * c), take(path, "qkv_bias", 3 * c),
                                  take(path, "projection_weight", c * c), take(path, "up_weight", 4 * c * c),
                                  take(path, "up_bias", 4 * c), take(path, "down_weight", 4 * c * c)});
    }
    weights.head = {take("head", "norm_weight", c), take("head", "norm_bias", c),
                    take("head", "weight", config.vocabulary * c)};
    return weights;
}

/// One element's step.
struct AdamW {
    float* parameters;
    const float* gradients;
    float* exp_avg;
    float* exp_avg_sq;
    float gradient_scale, decay, beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, inverse_root, epsilon;

    constexpr void operator()(std::size_t i) const {
        const float g = gradient_scale * gradients[i];
        exp_avg[i] = beta1 * exp_avg[i] + one_minus_beta1 * g;
        exp_avg_sq[i] = beta2 * exp_avg_sq[i] + (one_minus_beta2 * g) * g;
        const float denominator = std::sqrt(exp_avg_sq[i]) * inverse_root + epsilon;
        parameters[i] = decay * parameters[i] - (step_size * exp_avg[i]) / denominator;
    }
};

/// Trains, and returns the loss of every step.
inline std::vector<double> train(const Options& options, const std::vector<Token>& text, Job& job,
                                 const Report& report) {
    const auto refuse = [](bool given, const char* flag) {
        program::require(!given, flag, ": this trainer has none, the one after it has");
    };
    refuse(options.policy.kind != program::PolicyKind::no_shard, "--policy");
    refuse(options.clip > 0, "--clip");
    refuse(options.schedule, "--schedule");
    refuse(options.graph, "--graph");
    const train_gpt::ModelConfig& config = options.model;
    const train_gpt::BatchShape batch = options.pass(job.ranks);
    Inputs inputs(options, job, text);
    const Losses losses(options, job);
    Network network(job.stream, config, batch);
    const double weight = 1 / static_cast<double>(batch.tokens() * options.microbatches);

    std::vector<float> values;
    const train_gpt::Initialiser initial_value(options.seed, config);
    lay_out<float*>(config, [&](const std::string& path, const char* parameter, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            values.push_back(static_cast<float>(initial_value(path, parameter, i)));
        }
        return nullptr;
    });
    const std::size_t all = values.size();
    const DeviceArray<float> parameters(all, job.stream);
    const DeviceArray<float> gradients(all, job.stream);
    const DeviceArray<float> exp_avg(all, job.stream);
    const DeviceArray<float> exp_avg_sq(all, job.stream);
    copy(job.stream, parameters.data(), values.data(), all);
    const auto behind_each_other = [](float* at) {
        return [at](const auto& /*path*/, const char* /*parameter*/, std::size_t count) mutable {
            return std::exchange(at, at + count);
        };
    };
    const auto w = lay_out<const float*>(config, behind_each_other(parameters.data()));
    const auto d = lay_out<float*>(config, behind_each_other(gradients.data()));
    report.model_bytes(4 * parameters.bytes());
    double beta1_power = 1;
    double beta2_power = 1;

    for (std::size_t step = 0; step < options.steps; ++step) {
        inputs.load(step);
        double* const loss = losses.of(step);
        check(cudaMemsetAsync(gradients.data(), 0, gradients.bytes(), job.stream), "cudaMemsetAsync");
        for (std::size_t m = 0; m < options.microbatches; ++m) {
            const Token* const tokens = inputs.tokens(m);
            network.embed(w.embedding, tokens);
            for (std::size_t l = 0; l < config.layers; ++l) { network.block(l, w.blocks[l]); }
            network.head(w.head, d.head, Into::add, inputs.targets(m), weight, loss + m);
            for (std::size_t l = config.layers; l-- > 0;) {
                network.block_backward(l, w.blocks[l], d.blocks[l], Into::add);
            }
            network.embed_backward(tokens, d.embedding);
        }
        float* const g = gradients.data();
        check(ncclAllReduce(g, g, all, ncclFloat, ncclSum, job.comm, job.stream), "ncclAllReduce");
        check(ncclAllReduce(loss, loss, options.microbatches, ncclDouble, ncclSum, job.comm, job.stream),
              "ncclAllReduce");
        const double beta1 = 0.9;
        const double beta2 = 0.999;
        beta1_power *= beta1;
        beta2_power *= beta2;
        launch(job.stream, all,
               AdamW{.parameters = parameters.data(),
                     .gradients = g,
                     .exp_avg = exp_avg.data(),
                     .exp_avg_sq = exp_avg_sq.data(),
                     .gradient_scale = static_cast<float>(1 / static_cast<double>(job.ranks)),
                     .decay = static_cast<float>(1 - options.learning_rate * 0.01),
                     .beta1 = static_cast<float>(beta1),
                     .one_minus_beta1 = static_cast<float>(1 - beta1),
                     .beta2 = static_cast<float>(beta2),
                     .one_minus_beta2 = static_cast<float>(1 - beta2),
                     .step_size = static_cast<float>(options.learning_rate / (1 - beta1_power)),
                     .inverse_root = static_cast<float>(1 / std::sqrt(1 - beta2_power)),
                     .epsilon = 1e-8F});

        if (step % options.every == 0 || step + 1 == options.steps) {
            report.step(step, losses.means(step, 1).front());
        }
    }
    return losses.means(0, options.steps);
}

}  // namespace cuda_trainer::before
