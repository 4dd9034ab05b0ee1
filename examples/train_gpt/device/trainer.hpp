// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <shardkit/optim/optimizer.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/divisor.hpp>

#include "../model/pass.hpp"
#include "../program/adamw.hpp"
#include "../program/data_order.hpp"
#include "../program/dense_model.hpp"
#include "../program/engine_links.hpp"
#include "../program/forward_backward.hpp"
#include "../program/saved_run.hpp"
#include "place.hpp"

namespace train_gpt {

/// What a run takes of a device, in bytes.
struct DeviceMemory {
    std::uint64_t model;        ///< parameters, gradients, states and buffers of the library
    std::uint64_t activations;  ///< and scratch
    std::uint64_t exchange;     ///< of keys and values
    std::uint64_t beside;       ///< tokens, losses, and cuBLAS's workspace

    std::uint64_t total() const noexcept { return model + activations + exchange + beside; }
};

/// One rank's training run on an engine whose memory is a device's: what Trainer does, but that nothing in a step
/// waits for the device or reads its memory, so that a step can be captured into a graph.
template <class Engine, class T>
class DeviceTrainer {
    using Place = DevicePlace<Engine>;
    using DevicePass = Pass<T, Place>;
    template <class X>
    using Buffer = typename Engine::template Buffer<X>;

  public:
    /// Takes all memory of the run, and reads what the run begins with. Collective over the mesh.
    /// @throws FileError or std::invalid_argument, on every rank, when that cannot be read
    DeviceTrainer(sk::Context<Engine>& context, const Job& job,
                  std::size_t workspace_bytes = DeviceProducts<Engine>::workspace_bytes)
        : context_(context),
          job_(job),
          options_(job.options),
          split_(options_.split(context.grid().coordinate(sk::Tp::name, context.rank()),
                                context.grid().coordinate(sk::Cp::name, context.rank()))),
          part_(split_.chunks(options_.model.sequence)),
          capacity_(split_.local(options_.pass_shape())),
          data_ranks_(context.template sub_mesh<sk::Axes<sk::Dp, sk::Cp>>()),
          data_(job.text, options_.model.sequence, options_.seed),
          model_(context, options_.model, options_.chosen_policy()),
          groups_(initialized()),
          optimizer_(make_adamw<sk::StateFormat::full>(groups_, options_)),
          links_(context, split_, options_.context, attention_shape(options_.model, split_, capacity_).keys_values()),
          products_(context, workspace_bytes),
          memory_(
              context.template buffer<std::uint8_t>(DevicePass::bytes(options_.model, split_, capacity_, place()))),
          arena_(reinterpret_cast<std::byte*>(memory_.data()), memory_.size()),
          pass_(options_.model, split_, capacity_, links_, arena_, place()),
          steps_ahead_(std::clamp<std::size_t>(ahead_tokens / tokens_of_step(), 1, options_.steps)),
          ahead_on_device_(tokens(steps_ahead_ * tokens_of_step())),
          tokens_(tokens(tokens_of_step())),
          losses_(context.template buffer<double>(options_.microbatches)),
          history_(context.template local_buffer<double>(options_.microbatches * options_.steps)) {
        resume_run(context, job, groups_, *optimizer_);
    }

    /// Gives the device the tokens of step `number`, where every step reads them. Waits for the device only where
    /// those of the next steps have to be copied there.
    void load(std::size_t number) {
        if (number < ahead_first_ || number >= ahead_first_ + steps_ahead_ || ahead_.empty()) { copy_ahead(number); }
        place().each(tokens_of_step(),
                     Convert<Token, Token>{ahead_on_device_.data() + (number - ahead_first_) * tokens_of_step(),
                                           tokens_.data()});
    }

    /// Gives the streams a step over the tokens that were loaded last.
    void step() {
        sk::Accumulation accumulation{groups_, options_.microbatches};
        for (std::size_t m = 0; m < options_.microbatches; ++m) {
            const Token* const tokens = tokens_.data() + tokens_at(m);
            forward_backward(model_, accumulation, pass_, {options_.microbatch_sequences(m), part_.tokens()}, tokens,
                             tokens + capacity_.tokens(), losses_.data() + m);
        }
        optimizer_->step(std::move(accumulation),
                         {.divisor = sk::divide_by(static_cast<double>(options_.tokens_per_step())),
                          .max_norm = options_.clip > 0 ? options_.clip : sk::unlimited});
        add_losses(data_ranks_, std::span<double>(losses_.data(), options_.microbatches), context_.compute_stream());
    }

    /// Keeps the losses of the step that was given last, as number `number` of this run.
    void keep_losses(std::size_t number) const {
        place().each(options_.microbatches,
                     Convert<double, double>{losses_.data(), history_.data() + number * options_.microbatches});
    }
    /// The losses of `steps` steps from `first` on, each the mean over the global batch. Waits for the device.
    std::vector<double> losses(std::size_t first, std::size_t steps) const {
        std::vector<double> parts(steps * options_.microbatches);
        Engine::Kernels::copy_out(
            context_.compute_stream(),
            std::span<const double>(history_.data() + first * options_.microbatches, parts.size()),
            std::span<double>(parts));
        std::vector<double> means(steps);
        for (std::size_t i = 0; i < parts.size(); ++i) {
            means[i / options_.microbatches] += parts[i] / static_cast<double>(options_.tokens_per_step());
        }
        return means;
    }

    /// As save_run.
    std::string save(std::size_t steps) { return save_run(context_, job_, steps, groups_, *optimizer_); }

    auto& groups() noexcept { return groups_; }
    sk::Optimizer<Engine>& optimizer() noexcept { return *optimizer_; }
    /// The memory of a device that the run is planned to take at most.
    DeviceMemory planned() const {
        const sk::planner::PlanOptions steps{.microbatches = options_.microbatches,
                                             .norms_per_step = options_.clip > 0 ? 1U : 0U};
        const std::size_t tokens = (steps_ahead_ + 1) * tokens_of_step() * sizeof(Token);
        return {sk::plan(groups_, steps).memory.total().value, memory_.size(),
                exchange_bytes<Engine, typename DevicePass::S>(options_),
                products_.bytes() + tokens + (losses_.size() + history_.size()) * sizeof(double)};
    }

  private:
    static constexpr std::size_t ahead_tokens = std::size_t{4} << 20U;

    /// In a device's memory, whose elements these are not.
    struct Tokens {
        Buffer<std::uint8_t> bytes;

        Token* data() const noexcept { return reinterpret_cast<Token*>(bytes.data()); }
    };
    Tokens tokens(std::size_t count) const {
        return {context_.template local_buffer<std::uint8_t>(count * sizeof(Token))};
    }
    Place place() const { return {context_.compute_stream(), products_}; }
    std::size_t tokens_at(std::size_t microbatch) const { return 2 * microbatch * capacity_.tokens(); }
    std::size_t tokens_of_step() const { return tokens_at(options_.microbatches); }
    /// Copies the tokens of the steps from `number` on.
    void copy_ahead(std::size_t number) {
        const std::size_t first =
            context_.grid().coordinate(sk::Dp::name, context_.rank()) * options_.sequences_per_rank();
        ahead_.resize(steps_ahead_ * tokens_of_step());
        for (std::size_t step = 0; step < steps_ahead_; ++step) {
            for (std::size_t m = 0; m < options_.microbatches; ++m) {
                Token* const to = ahead_.data() + step * tokens_of_step() + tokens_at(m);
                data_.fill(number + step, first + options_.microbatch_begin(m), options_.microbatch_sequences(m),
                           part_, to, to + capacity_.tokens());
            }
        }
        const std::size_t bytes = ahead_.size() * sizeof(Token);
        Engine::Kernels::copy_in(
            context_.compute_stream(),
            std::span<const std::uint8_t>(reinterpret_cast<const std::uint8_t*>(ahead_.data()), bytes),
            std::span<std::uint8_t>(ahead_on_device_.bytes.data(), bytes));
        ahead_first_ = number;
    }
    auto initialized() {
        auto groups = model_.groups();
        give_first_values(context_, job_, groups);
        return groups;
    }

    sk::Context<Engine>& context_;
    const Job& job_;
    const Options& options_;
    Split split_;
    sk::cp::CausalChunks part_;
    BatchShape capacity_;
    typename Engine::Communicator data_ranks_;
    DataOrder data_;
    DenseModel<Engine, T> model_;
    decltype(model_.groups()) groups_;
    std::unique_ptr<sk::Optimizer<Engine>> optimizer_;
    EngineLinks<Engine, typename DevicePass::S> links_;
    DeviceProducts<Engine> products_;
    Buffer<std::uint8_t> memory_;
    Arena arena_;
    DevicePass pass_;
    std::size_t ahead_first_ = 0;  // the step whose tokens `ahead_` begins with
    std::size_t steps_ahead_;
    std::vector<Token> ahead_;  // [steps_ahead, microbatches, tokens | targets]
    Tokens ahead_on_device_;    // likewise
    Tokens tokens_;             // of one step
    Buffer<double> losses_;     // [microbatches]
    Buffer<double> history_;    // [steps, microbatches]
};

}  // namespace train_gpt
