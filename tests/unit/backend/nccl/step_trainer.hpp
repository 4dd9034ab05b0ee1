// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/loss_scale.hpp>

#include "trainer_layer.hpp"

/// A trainer whose steps are all alike, so that one can be captured in a graph: what differs from step to step
/// (parameters, loss scale, learning rate, the log of norms) lies in the engine's memory. The user's kernels are
/// given to sk::host::AnyKernels::run_once, so that the source is the same on every engine.
namespace step_trainer {

namespace sk = shardkit;

using trainer_layer::Backward;
using trainer_layer::Bias;
using trainer_layer::bias_size;
using trainer_layer::Forward;
using trainer_layer::never;
using trainer_layer::Weight;
using trainer_layer::weight_size;

inline constexpr std::size_t layers = 3;
inline constexpr std::size_t logged_steps = 64;

struct Settings {
    std::size_t microbatches = 1;
    bool clips = true;
    bool scales_loss = false;  ///< a gradient of the last rank then overflows whenever the scale is 16 or more
    double learning_rate = 0.25;
    sk::Offload offload = sk::Offload::none;
    bool releases = false;  ///< updates each layer within the backward pass, and gives its gradients' buffer back
};

/// log[0] counts the steps; each appends its norm's total and the loss scale that it ran with.
struct Note {
    const double* total;                   ///< null without a norm
    const sk::LossScaleState* loss_scale;  ///< null without one
    double* log;

    constexpr void operator()() const {
        double* const at = log + 1 + 2 * static_cast<std::size_t>(log[0]);
        at[0] = total == nullptr ? 0 : *total;
        at[1] = loss_scale == nullptr ? 1 : loss_scale->value();
        log[0] += 1;
    }
};

struct Outcome {
    std::vector<double> parameters;
    std::vector<double> log;  ///< of each step: the sum of squares of its gradients, its loss scale
};

/// Bit for bit; a norm that overflowed may be NaN in both.
inline bool same(const Outcome& a, const Outcome& b) {
    const auto equal = [](const std::vector<double>& x, const std::vector<double>& y) {
        return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0);
    };
    return equal(a.parameters, b.parameters) && equal(a.log, b.log);
}

template <class T, class Rank>
class Trainer {
  public:
    Trainer(Rank& rank, const sk::DynamicPolicy& policy, const Settings& settings)
        : rank_(rank),
          settings_(settings),
          model_(make_model(rank, policy, settings)),
          groups_(model_),
          optimizer_(groups_, {.learning_rate = settings.learning_rate, .weight_decay = 0.125}),
          loss_scale_(rank, {.initial = 4, .growth_interval = 1}),
          log_(rank.template buffer<double>(1 + 2 * logged_steps)) {
        for (std::size_t l = 0; l < layers; ++l) { activations_.push_back(rank.template buffer<T>(weight_size)); }
    }

    void step() {
        if (settings_.releases) {
            sk::Accumulation accumulation{groups_, settings_.microbatches};
            optimizer_.step_in_backward(accumulation);
            add(accumulation);
            run(Note{nullptr, nullptr, log_.data()});
            optimizer_.step(std::move(accumulation));
            return;
        }
        auto reduced = gradients();
        if (settings_.clips) {
            const auto norm = sk::global_norm(reduced);
            run(Note{norm.data(), loss_scale(), log_.data()});
            optimizer_.step(std::move(reduced), sk::clip(norm, 2));
        } else {
            run(Note{nullptr, loss_scale(), log_.data()});
            optimizer_.step(std::move(reduced));
        }
    }
    auto& groups() { return groups_; }
    /// A step whose gradients are reduced and dropped: nobody waits for them.
    void abandon() { static_cast<void>(gradients()); }
    void set_learning_rate(double value) { optimizer_.set_learning_rate(value); }
    /// Looks at every parameter in full, as an evaluation between steps does.
    void evaluate() {
        for (auto& layer : model_) {
            const auto window = layer.unshard();
            run(Forward<T>{{window[Weight<T>{}].data(), weight_size}, activations_[0].data()});
        }
    }

    Outcome outcome() {
        Outcome result;
        for (auto& layer : model_) {
            std::vector<double> values(weight_size + bias_size);
            layer.read_full(Weight<T>{}, std::span(values).first(weight_size));
            layer.read_full(Bias<T>{}, std::span(values).last(bias_size));
            result.parameters.insert(result.parameters.end(), values.begin(), values.end());
        }
        std::vector<double> log(1 + 2 * logged_steps);
        sk::host::AnyKernels::copy_out(rank_.compute_stream(), std::span<const double>(log_.span()), std::span(log));
        result.log.assign(log.begin() + 1, log.begin() + 1 + 2 * static_cast<std::ptrdiff_t>(log[0]));
        rank_.communication_stream().synchronize();
        return result;
    }

  private:
    using Group = sk::Params<Weight<T>, Bias<T>>;
    using Layer = sk::Sharded<Group, sk::DynamicPolicy>;
    using Model = std::deque<Layer>;
    using ModelGroups = sk::Model;
    using Optimizer = sk::AdamW;

    static Model make_model(Rank& rank, const sk::DynamicPolicy& policy, const Settings& settings) {
        typename Layer::Options options{policy};
        options.offload = settings.offload;
        if (settings.releases) { options.gradient_release = sk::GradientRelease::at_update; }
        Model model;
        for (std::size_t l = 0; l < layers; ++l) {
            model.emplace_back(rank, "layers." + std::to_string(l), sk::Shapes<Group>{}, options);
            model[l].initialize(trainer_layer::first_value);
        }
        return model;
    }
    auto gradients() {
        sk::Accumulation accumulation{groups_, settings_.microbatches};
        add(accumulation);
        return settings_.scales_loss ? sk::reduce(std::move(accumulation), sk::mean, loss_scale_)
                                     : sk::reduce(std::move(accumulation), sk::mean);
    }
    template <class Accumulation>
    void add(Accumulation& accumulation) {
        for (std::size_t m = 0; m < settings_.microbatches; ++m) {
            for (std::size_t l = 0; l < layers; ++l) {
                const auto window = model_[l].unshard();
                run(Forward<T>{{window[Weight<T>{}].data(), weight_size}, activations_[l].data()});
            }
            for (std::size_t l = layers; l-- > 0;) { backward(accumulation, l, m); }
        }
    }
    template <class Accumulation>
    void backward(Accumulation& accumulation, std::size_t l, std::size_t microbatch) {
        auto window = model_[l].unshard();
        auto handle = accumulation.gradients(model_[l]);
        const float slope = trainer_layer::slope(rank_.rank(), microbatch, l);
        const bool may_overflow = settings_.scales_loss && l == 1 && rank_.rank() + 1 == rank_.world_size();
        const T* const activation = activations_[l].data();
        run(Backward<T>{{window[Weight<T>{}].data(), weight_size},
                        activation,
                        handle[Weight<T>{}].data(),
                        slope,
                        loss_scale(),
                        may_overflow ? 16 : never});
        run(Backward<T>{
            {window[Bias<T>{}].data(), bias_size}, activation, handle[Bias<T>{}].data(), slope, loss_scale(), never});
        model_[l].reshard(std::move(window));
        accumulation.add(std::move(handle));
    }
    const sk::LossScaleState* loss_scale() const { return settings_.scales_loss ? loss_scale_.data() : nullptr; }
    template <class Work>
    void run(const Work& work) {
        sk::host::AnyKernels::run_once(rank_.compute_stream(), work);
    }

    Rank& rank_;
    Settings settings_;
    Model model_;
    ModelGroups groups_;
    Optimizer optimizer_;
    sk::LossScale loss_scale_;
    sk::HostBuffer<double> log_;
    std::vector<sk::HostBuffer<T>> activations_;
};

struct Dropped {};

/// Works through `plan`, one letter after the other: e a step, a an abandoned one, C a step captured in a graph
/// (which is not run by that), D a capture that an exception ends, L a launch of the last graph, v an evaluation, r a
/// lower learning rate. `capture(step)` returns the graph.
template <class T, class Rank, class Capture>
Outcome follow(Rank& rank, const sk::DynamicPolicy& policy, const Settings& settings, std::string_view plan,
               const Capture& capture) {
    Trainer<T, Rank> trainer(rank, policy, settings);
    double learning_rate = settings.learning_rate;
    const auto step = [&] { trainer.step(); };
    std::vector<decltype(capture(step))> graphs;
    for (const char each : plan) {
        if (each == 'e') { step(); }
        if (each == 'a') { trainer.abandon(); }
        if (each == 'C') { graphs.push_back(capture(step)); }
        if (each == 'D') {
            try {
                capture([&] {
                    step();
                    throw Dropped{};
                });
            } catch (const Dropped&) {}  // NOLINT(bugprone-empty-catch)
        }
        if (each == 'L') { graphs.back().launch(); }
        if (each == 'v') { trainer.evaluate(); }
        if (each == 'r') { trainer.set_learning_rate(learning_rate /= 2); }
    }
    return trainer.outcome();
}

/// For `follow` on an engine without graphs: its launch makes the step.
template <class Step>
struct Repeated {
    const Step* step;
    void launch() const { (*step)(); }
};
struct Repeat {
    template <class Step>
    Repeated<Step> operator()(const Step& step) const {
        return {&step};
    }
};

}  // namespace step_trainer
