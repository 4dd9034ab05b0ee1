// SPDX-License-Identifier: Apache-2.0
#include "trainer.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include <shardkit/verbs.hpp>

namespace class_trainer {

namespace {
constexpr std::size_t blocks = 3, batch = 16, microbatches = 2;
using Values = std::array<float, batch * width>;
}  // namespace

Trainer::Trainer(sk::Rank& rank, std::string_view optimizer) : rank_(rank), head_(rank, "head") {
    for (std::size_t l = 0; l < blocks; ++l) { blocks_.emplace_back(rank, "blocks." + std::to_string(l)); }
    model_ = std::make_unique<sk::Model>(blocks_, head_);
    optimizer_ = make_optimizer(*model_, optimizer);
    model_->initialize([](auto /*group*/, auto parameter, std::uint64_t i) {
        return parameter == "bias" ? 0.0 : 0.4 * std::sin(7.0 * static_cast<double>(i * i));
    });
}

std::unique_ptr<sk::Optimizer> Trainer::make_optimizer(const sk::Model& model, std::string_view name) {
    if (name == "adamw") { return std::make_unique<sk::AdamW>(model, sk::AdamWOptions{.learning_rate = 1e-2}); }
    if (name == "lion") { return std::make_unique<sk::Lion>(model, sk::LionOptions{.learning_rate = 2e-3}); }
    if (name == "sgd") { return std::make_unique<sk::SGD>(model, sk::SgdOptions{.learning_rate = 0.1}); }
    throw std::invalid_argument("optimizer '" + std::string(name) + "': expected adamw, lion or sgd");
}

Trainer::Step Trainer::step(std::size_t number) {
    const std::size_t first_sample = (number * rank_.world_size() + rank_.rank()) * microbatches * batch;
    sk::Accumulation accumulation{*model_, microbatches};
    float loss = 0;
    for (std::size_t m = 0; m < microbatches; ++m) {
        loss += forward_backward(accumulation, first_sample + m * batch);
    }
    const auto norm = optimizer_->step(std::move(accumulation), {.divisor = sk::mean, .max_norm = 1.0});
    sk::all_reduce_in_place(rank_.world(), sk::ReduceOp::sum, std::span<float>(&loss, 1), rank_.compute_stream());
    return {loss / static_cast<float>(rank_.world_size()), norm.value()};
}

float Trainer::forward_backward(sk::Accumulation& accumulation, std::size_t first_sample) {
    std::array<Values, blocks + 1> x{};  // what goes into each block, and into the head
    std::array<Values, blocks> h{};
    for (std::size_t s = 0; s < batch; ++s) {
        const auto n = static_cast<float>(first_sample + s);
        x[0][s * width] = std::sin(1.7F * n);
        x[0][s * width + 1] = std::cos(2.3F * n);
    }
    for (std::size_t l = 0; l < blocks; ++l) {
        const auto w = blocks_[l].unshard();
        for (std::size_t i = 0; i < batch * width; ++i) {
            float z = w[Bias{}][i % width];
            for (std::size_t j = 0; j < width; ++j) {
                z += w[Weight{}][i % width * width + j] * x[l][i / width * width + j];
            }
            h[l][i] = std::tanh(z);
            x[l + 1][i] = x[l][i] + h[l][i];
        }
    }

    float loss = 0;
    Values dx{};
    {
        const auto w = head_.unshard();
        auto g = accumulation.gradients(head_);
        for (std::size_t s = 0; s < batch; ++s) {
            float error = -std::sin(3 * x[0][s * width]) * x[0][s * width + 1];
            for (std::size_t i = 0; i < width; ++i) { error += w[Out{}][i] * x[blocks][s * width + i]; }
            loss += error * error / (batch * microbatches);
            const float dy = 2 * error / (batch * microbatches);
            for (std::size_t i = 0; i < width; ++i) {
                g[Out{}][i] += dy * x[blocks][s * width + i];
                dx[s * width + i] = dy * w[Out{}][i];
            }
        }
        accumulation.add(std::move(g));
    }
    for (std::size_t l = blocks; l-- > 0;) {
        const auto w = blocks_[l].unshard();
        auto g = accumulation.gradients(blocks_[l]);
        Values below = dx;  // beside the block
        for (std::size_t i = 0; i < batch * width; ++i) {
            const float dz = dx[i] * (1 - h[l][i] * h[l][i]);
            g[Bias{}][i % width] += dz;
            for (std::size_t j = 0; j < width; ++j) {
                g[Weight{}][i % width * width + j] += dz * x[l][i / width * width + j];
                below[i / width * width + j] += dz * w[Weight{}][i % width * width + j];
            }
        }
        dx = below;
        accumulation.add(std::move(g));
    }
    return loss;
}

}  // namespace class_trainer
