// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include <shardkit/shardkit.hpp>

// A trainer as a class: its model and its optimizer are members, and the optimizer is chosen by name. Who uses the
// class includes this header; the steps are compiled in trainer.cpp alone. The library's core is compiled once, in a
// file of its own: with SHARDKIT_COMPILED both of these take seconds. Without the define they compile as they are.
namespace class_trainer {

namespace sk = shardkit;

constexpr std::size_t width = 8;
struct Weight : sk::Param<"weight", float, width, width> {};
struct Bias : sk::Param<"bias", float, width> {};
struct Out : sk::Param<"out", float, width> {};

/// One rank's training of residual blocks, x + tanh(W x + b), and a head to one number.
class Trainer {
  public:
    struct Step {
        float loss;  // mean over all ranks' samples
        double norm;
    };

    /// `optimizer`: adamw, lion or sgd. Collective over the ranks.
    /// @throws std::invalid_argument for another name
    Trainer(sk::Rank& rank, std::string_view optimizer);

    Step step(std::size_t number);
    void set_learning_rate(double learning_rate) { optimizer_->set_learning_rate(learning_rate); }

  private:
    using Block = sk::Sharded<sk::Params<Weight, Bias>, sk::FullShard>;
    using Head = sk::Sharded<Out, sk::FullShard>;

    static std::unique_ptr<sk::Optimizer> make_optimizer(const sk::Model& model, std::string_view name);
    /// Adds a microbatch's gradients, and returns its loss.
    float forward_backward(sk::Accumulation& accumulation, std::size_t first_sample);

    // In the order in which they are made: a model lists groups that exist, an optimizer takes a model's.
    sk::Rank& rank_;
    Head head_;
    std::vector<Block> blocks_;
    std::unique_ptr<sk::Model> model_;
    std::unique_ptr<sk::Optimizer> optimizer_;
};

}  // namespace class_trainer
