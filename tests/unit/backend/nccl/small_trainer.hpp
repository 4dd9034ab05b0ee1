// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <shardkit/follow/follow.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/schedule/passes.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/slices.hpp>

#include "trainer_layer.hpp"

/// A trainer whose source is the same for every engine: its own kernels are given to the compute stream and it looks
/// at nothing in between.
namespace small_trainer {

namespace sk = shardkit;

using trainer_layer::Backward;
using trainer_layer::Bias;
using trainer_layer::bias_size;
using trainer_layer::Forward;
using trainer_layer::never;
using trainer_layer::Weight;
using trainer_layer::weight_size;

inline constexpr std::size_t layers = 4;

struct Training {
    std::size_t microbatches = 1;
    std::size_t in_flight = 2;
    std::size_t steps = 3;
    bool prefetch = false;    ///< a window of the next layer is begun while the last one's is open, and dropped
    bool loss_scale = false;  ///< and a gradient that overflows in step 1
    bool norm = true;         ///< taken, and clipped by
    bool abandon = false;     ///< the gradients of step 0 (where that is recorded, of step 1) are reduced and dropped
    bool scheduled = false;   ///< the steps behind step 0 follow its schedule, improved
    bool keeps = true;        ///< it keeps groups gathered: fewer gathers take the place of gradients
    bool in_backward = false;  ///< each group is updated behind its reduction, and releases its gradients
    bool slices = false;       ///< a microbatch is a slice of the policy's, and there are as many as these make
    bool overlaps = false;     ///< its reductions run beside the next group's backward pass
};

struct Outcome {
    std::vector<float> parameters;
    std::vector<double> norms;
    double loss_scale = 0;

    friend bool operator==(const Outcome&, const Outcome&) = default;
};

/// `submit(stream, work)`: how the user's kernels run on this engine.
template <class T, class Rank, class Submit>
Outcome train(Rank& rank, const sk::DynamicPolicy& policy, const Training& training, const Submit& submit) {
    using Group = sk::Params<Weight<T>, Bias<T>>;
    const auto stream = rank.compute_stream();
    using Layer = sk::Sharded<Group, sk::DynamicPolicy>;
    std::deque<Layer> model;
    std::deque<sk::HostBuffer<T>> activations;
    for (std::size_t l = 0; l < layers; ++l) {
        typename Layer::Options options{policy};
        if (training.in_backward) { options.gradient_release = sk::GradientRelease::at_update; }
        model.emplace_back(rank, "layers." + std::to_string(l), sk::Shapes<Group>{}, options);
        model[l].initialize(trainer_layer::first_value);
        activations.push_back(rank.template buffer<T>(weight_size));
    }
    sk::Model groups{model};
    sk::AdamW optimizer{groups, {.learning_rate = 0.25, .weight_decay = 0.125}};
    sk::LossScale loss_scale{rank, {.initial = 4, .growth_interval = 1}};

    std::vector<sk::GlobalNorm> norms;
    const auto one_step = [&](std::size_t step) {
        optimizer.set_learning_rate(0.25 / static_cast<double>(step + 1));
        const std::size_t microbatches =
            training.slices ? sk::slice_order(groups).microbatches() : training.microbatches;
        sk::Accumulation accumulation{groups, microbatches};
        if (training.in_backward) { optimizer.step_in_backward(accumulation); }
        for (std::size_t m = 0; m < microbatches; ++m) {
            for (std::size_t l = 0; l < layers; ++l) {
                const auto window = model[l].unshard();
                submit(stream, Forward<T>{{window[Weight<T>{}].data(), weight_size}, activations[l].data()});
            }
            for (std::size_t l = layers; l-- > 0;) {
                auto pending = model[l].begin_unshard();
                auto handle = accumulation.gradients(model[l]);
                auto window = std::move(pending).wait();
                const float slope = training.slices ? trainer_layer::slope(0, sk::slice_of(groups, m), l)
                                                    : trainer_layer::slope(rank.rank(), m, l);
                const bool overflows =
                    training.loss_scale && step == 1 && m == 0 && l == 2 && rank.rank() + 1 == rank.world_size();
                const sk::LossScaleState* const scale = training.loss_scale ? loss_scale.data() : nullptr;
                submit(stream, Backward<T>{{window[Weight<T>{}].data(), weight_size},
                                           activations[l].data(),
                                           handle[Weight<T>{}].data(),
                                           slope,
                                           scale,
                                           overflows ? 0 : never});
                submit(stream, Backward<T>{{window[Bias<T>{}].data(), bias_size},
                                           activations[l].data(),
                                           handle[Bias<T>{}].data(),
                                           slope,
                                           scale,
                                           never});
                if (training.prefetch && l > 0) {
                    const auto next = model[l - 1].begin_unshard();
                    model[l].reshard(std::move(window));
                } else {
                    model[l].reshard(std::move(window));
                }
                accumulation.add(std::move(handle));
            }
        }
        if (training.in_backward) {
            optimizer.step(std::move(accumulation));
            return;
        }
        auto reduced = training.loss_scale ? sk::reduce(std::move(accumulation), sk::mean, loss_scale)
                                           : sk::reduce(std::move(accumulation), sk::mean);
        if (training.abandon && step == (training.scheduled ? 1U : 0U)) { return; }
        if (training.norm) {
            norms.push_back(sk::global_norm(reduced));
            optimizer.step(std::move(reduced), sk::clip(norms.back(), 2));
        } else {
            optimizer.step(std::move(reduced), sk::ClipCoefficient{});
        }
    };
    std::optional<sk::schedule::Following> following;
    for (std::size_t step = 0; step < training.steps; ++step) {
        if (training.scheduled && step == 0) {
            const auto described = sk::describe_groups(groups);
            const sk::Schedule recorded = sk::schedule::record(groups, [&] { one_step(step); });
            const sk::ByteCount limit = sk::schedule::peak(recorded, described) + sk::ByteCount(2048);
            const sk::Schedule kept =
                training.keeps ? sk::schedule::keep_gathered(recorded, described, limit) : recorded;
            const sk::Schedule ahead = sk::schedule::prefetch(kept, described, 1);
            const sk::Schedule beside =
                training.overlaps ? sk::schedule::overlap_reductions(ahead, described) : ahead;
            if (training.overlaps && beside == ahead) { throw std::logic_error("no reduction begins later"); }
            following.emplace(sk::schedule::follow(groups, sk::schedule::gather_after_update(beside, described)));
        } else {
            one_step(step);
        }
    }
    following.reset();

    Outcome outcome;
    for (const auto& norm : norms) { outcome.norms.push_back(norm.value()); }
    outcome.loss_scale = loss_scale.value();
    for (auto& layer : model) {
        std::vector<float> values(weight_size + bias_size);
        layer.read_full(Weight<T>{}, std::span(values).first(weight_size));
        layer.read_full(Bias<T>{}, std::span(values).last(bias_size));
        outcome.parameters.insert(outcome.parameters.end(), values.begin(), values.end());
    }
    rank.communication_stream().synchronize();
    rank.reduction_stream().synchronize();
    return outcome;
}

}  // namespace small_trainer
