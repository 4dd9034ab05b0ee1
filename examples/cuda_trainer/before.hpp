// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "inputs.hpp"
#include "job.hpp"
#include "network.hpp"

/// The trainer before: every rank holds everything in flat buffers, and gradients are all-reduced.
namespace cuda_trainer::before {

/// All parameters, or all gradients, behind each other in one allocation, and pointers into it.
struct FlatModel {
    DeviceArray<float> memory;
    EmbeddingWeights<float> embedding;
    std::vector<BlockWeights<float>> blocks;
    HeadWeights<float> head;

    FlatModel(const Shape& shape, cudaStream_t stream) : memory(shape.all(), stream) {
        float* at = memory.data();
        const auto take = [&](std::size_t count) { return std::exchange(at, at + count); };
        embedding = {take(shape.table()), take(shape.projection()), take(shape.width)};
        for (std::size_t l = 0; l < shape.layers; ++l) {
            blocks.push_back({take(shape.expand()), take(shape.hidden()), take(shape.contract()), take(shape.width)});
        }
        head = {take(shape.logits()), take(Shape::vocabulary)};
    }

    void initialize(const Shape& shape, std::uint64_t seed, cudaStream_t stream) {
        std::vector<float> values;
        const auto add = [&](const std::string& path, const char* parameter, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) {
                values.push_back(static_cast<float>(initial_value(shape, seed, path, parameter, i)));
            }
        };
        add("embedding", "table", shape.table());
        add("embedding", "projection", shape.projection());
        add("embedding", "bias", shape.width);
        for (std::size_t l = 0; l < shape.layers; ++l) {
            const std::string path = "blocks." + std::to_string(l);
            add(path, "expand", shape.expand());
            add(path, "expand_bias", shape.hidden());
            add(path, "contract", shape.contract());
            add(path, "contract_bias", shape.width);
        }
        add("head", "logits", shape.logits());
        add("head", "bias", Shape::vocabulary);
        upload(stream, memory.data(), values.data(), values.size());
    }
};

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
inline std::vector<float> train(const Options& options, const std::vector<std::uint8_t>& text, Gpu& gpu, Job& job,
                                const Report& report) {
    if (options.policy.kind != program::PolicyKind::no_shard) {
        throw InputError("--policy: this trainer has none, the one after it has");
    }
    if (options.clip > 0) { throw InputError("--clip: this trainer does not clip, the one after it does"); }
    if (options.schedule) { throw InputError("--schedule on: this trainer has none, the one after it has"); }
    if (options.offload != shardkit::Offload::none) {
        throw InputError("--offload: this trainer keeps its states on the GPU, the one after it can offload");
    }
    if (options.graph) { throw InputError("--graph on: this trainer captures nothing, the one after it does"); }
    const Shape& shape = options.shape;
    FlatModel parameters(shape, gpu.stream);
    FlatModel gradients(shape, gpu.stream);
    const DeviceArray<float> exp_avg(shape.all(), gpu.stream);
    const DeviceArray<float> exp_avg_sq(shape.all(), gpu.stream);
    parameters.initialize(shape, options.seed, gpu.stream);
    report.model_bytes(4 * parameters.memory.bytes());

    const Inputs inputs(gpu, options, job, text);
    const float weight = 1 / static_cast<float>(inputs.samples() * options.microbatches);
    Network<float> network(gpu, shape, inputs.samples());
    const DeviceArray<float> losses(options.steps, gpu.stream);
    double beta1_power = 1;
    double beta2_power = 1;

    for (std::size_t step = 0; step < options.steps; ++step) {
        inputs.load(step);
        float* const loss = losses.data() + step;
        check(cudaMemsetAsync(gradients.memory.data(), 0, gradients.memory.bytes(), gpu.stream), "cudaMemsetAsync");
        for (std::size_t m = 0; m < options.microbatches; ++m) {
            const Batch batch = inputs.batch(m);
            network.embed(parameters.embedding.read_only(), batch);
            for (std::size_t l = 0; l < shape.layers; ++l) { network.block(l, parameters.blocks[l].read_only()); }
            network.head(parameters.head.read_only(), gradients.head, batch, weight, loss);
            for (std::size_t l = shape.layers; l-- > 0;) {
                network.block_backward(l, parameters.blocks[l].read_only(), gradients.blocks[l]);
            }
            network.embed_backward(parameters.embedding.read_only(), gradients.embedding, batch);
        }
        float* const g = gradients.memory.data();
        check(ncclAllReduce(g, g, shape.all(), ncclFloat, ncclSum, job.comm, gpu.stream), "ncclAllReduce");
        check(ncclAllReduce(loss, loss, 1, ncclFloat, ncclSum, job.comm, gpu.stream), "ncclAllReduce");
        const double beta1 = 0.9;
        const double beta2 = 0.999;
        beta1_power *= beta1;
        beta2_power *= beta2;
        launch(gpu.stream, shape.all(),
               AdamW{.parameters = parameters.memory.data(),
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
            float sum = 0;
            download(gpu.stream, &sum, loss, 1);
            report.step(step, sum / static_cast<float>(job.ranks));
        }
    }
    std::vector<float> result(options.steps);
    download(gpu.stream, result.data(), losses.data(), result.size());
    for (float& each : result) { each /= static_cast<float>(job.ranks); }
    return result;
}

}  // namespace cuda_trainer::before
