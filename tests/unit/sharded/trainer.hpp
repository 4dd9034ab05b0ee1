// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/sgd.hpp>

#include "unit/sharded/chosen.hpp"
#include "unit/sharded/serial_oracle.hpp"
#include "unit/sharded/toy_model.hpp"

namespace toy SHARDKIT_BUILD {

using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

/// What a test wants to see or do on every rank while it trains.
struct Hooks {
    std::function<void(std::size_t rank, std::size_t step)> before_step{};
    /// Before each call of a library verb that may communicate; `position` counts from 0 on every rank.
    std::function<void(std::size_t rank, std::size_t position)> before_verb{};
};

/// One rank's view of a training.
struct RankResult : Trained {
    std::vector<sk::TrafficLog::Entry> traffic;  ///< of the last step
};

namespace detail {

template <class T>
double to_double(T value) {
    return static_cast<double>(static_cast<sk::Arithmetic<T>>(value));
}

/// Adds one sample's gradient of one tensor, read from the window, to the handle.
template <class Window, class Handle, class P>
void backward(const Window& window, const Handle& handle, P parameter, std::size_t tensor, std::size_t step,
              std::size_t sample) {
    const auto value = window[parameter];
    const auto grad = handle[parameter];
    using Gradient = std::remove_cvref_t<decltype(grad[0])>;
    for (std::size_t i = 0; i < grad.size(); ++i) {
        const double more = gradient(to_double(value[i]), tensor, i, step, sample);
        grad[i] = static_cast<Gradient>(static_cast<sk::Arithmetic<Gradient>>(to_double(grad[i]) + more));
    }
}

template <class Accumulation>
auto reduce(Accumulation&& accumulation, const Training& training) {
    switch (training.divisor) {
        case DivideBy::nothing:
            return sk::reduce(std::move(accumulation), sk::sum);
        case DivideBy::data_ranks:
            return sk::reduce(std::move(accumulation), sk::mean);
        case DivideBy::samples:
            break;
    }
    return sk::reduce(std::move(accumulation), sk::divide_by(static_cast<double>(training.samples)));
}

}  // namespace detail

/// One rank of the training that `train_serially` does in one place. Sample s belongs to data rank
/// s / microbatches % data_ranks and its microbatch s % microbatches; a microbatch without samples adds zero.
template <class Rank, class ModelType>
void train_rank(Rank& rank, ModelType& model, sk::Optimizer& optimizer, const Training& training, const Hooks& hooks,
                RankResult& result) {
    const auto grid = rank.grid();
    const std::size_t cp = grid.extent("cp");
    const std::size_t data_ranks = grid.extent("dp") * cp;
    const std::size_t data_rank = grid.coordinate("dp", rank.rank()) * cp + grid.coordinate("cp", rank.rank());
    std::size_t position = 0;
    const auto verb = [&] {
        if (hooks.before_verb) { hooks.before_verb(rank.rank(), position); }
        ++position;
    };
    auto groups = model.groups();
    result.norms.reserve(training.steps);
    for (std::size_t step = 0; step < training.steps; ++step) {
        if (step + 1 == training.steps) { rank.traffic().clear(); }
        if (hooks.before_step) { hooks.before_step(rank.rank(), step); }
        sk::Accumulation accumulation{groups, training.microbatches};
        for (std::size_t m = 0; m < training.microbatches; ++m) {
            const std::size_t first = data_rank * training.microbatches + m;
            const std::size_t stride = data_ranks * training.microbatches;
            const auto forward = [&](auto& layer) {
                verb();
                auto window = layer.unshard();
                layer.reshard(std::move(window));
            };
            const auto backward = [&](auto& layer, std::size_t tensor) {
                verb();
                auto window = layer.unshard();
                verb();
                if (first >= training.samples) {
                    layer.reshard(std::move(window));
                    accumulation.add_zero(layer);
                    return;
                }
                auto handle = accumulation.gradients(layer);
                for (std::size_t s = first; s < training.samples; s += stride) {
                    [&]<class... P>(sk::Params<P...>*) {
                        std::size_t t = tensor;
                        (detail::backward(window, handle, P{}, t++, step, s), ...);
                    }(static_cast<typename std::remove_cvref_t<decltype(layer)>::Group*>(nullptr));
                }
                layer.reshard(std::move(window));
                accumulation.add(std::move(handle));
            };
            model.for_each_layer(forward);
            backward(model.tail, 7);
            for (std::size_t l = 3; l > 0; --l) { backward(model.layers[l - 1], 2 * l - 1); }
            backward(model.table, 0);
        }
        verb();
        auto reduced = detail::reduce(std::move(accumulation), training);
        verb();
        const auto norm = sk::global_norm(reduced);
        result.norms.push_back(norm.value());
        verb();
        optimizer.step(std::move(reduced), training.clip > 0 ? sk::clip(norm, training.clip) : sk::ClipCoefficient{});
    }
    if (hooks.before_step) { hooks.before_step(rank.rank(), training.steps); }
    result.traffic = rank.traffic().entries();
    verb();
    result.parameters = model.read();
    verb();
}

/// Any rank: makes the model and the optimizer that the training names.
template <class Precision, class Rank, class Policy>
RankResult train_rank_as(Rank& rank, const Policy& policy, const Training& training, const Hooks& hooks) {
    RankResult result;
    Model<Policy, Precision> model(rank, policy);
    if (training.rule == Rule::adamw) {
        sk::AdamW optimizer{model.groups(),
                            {.learning_rate = training.learning_rate, .weight_decay = training.weight_decay}};
        train_rank(rank, model, optimizer, training, hooks, result);
    } else {
        const auto rule = training.rule == Rule::sgd        ? sk::Momentum::none
                          : training.rule == Rule::momentum ? sk::Momentum::classical
                                                            : sk::Momentum::nesterov;
        sk::SGD optimizer{model.groups(),
                          {.learning_rate = training.learning_rate,
                           .rule = rule,
                           .momentum = rule == sk::Momentum::none ? 0 : 0.9,
                           .weight_decay = training.weight_decay}};
        train_rank(rank, model, optimizer, training, hooks, result);
    }
    return result;
}

/// Every rank's result of the training on `mesh`, ranks as threads, with the policy's own type.
template <class Precision, class Policy>
std::vector<RankResult> train_as(Mesh mesh, const Policy& policy, const Training& training, const Hooks& hooks = {},
                                 sk::RankOptions options = {}, const sk::threads::LaunchOptions& launch = {}) {
    std::vector<RankResult> results(mesh.size());
    sk::threads::run(
        mesh, [&](auto& rank) { results[rank.rank()] = train_rank_as<Precision>(rank, policy, training, hooks); },
        options, launch);
    return results;
}

/// With the policy as one that is chosen at run time.
template <class Precision, class Rank, class Policy>
RankResult train_rank(Rank& rank, const Policy& policy, const Training& training, const Hooks& hooks = {}) {
    return train_rank_as<Precision>(rank, chosen(policy), training, hooks);
}
template <class Precision, class Policy>
std::vector<RankResult> train(Mesh mesh, const Policy& policy, const Training& training, const Hooks& hooks = {},
                              sk::RankOptions options = {}, const sk::threads::LaunchOptions& launch = {}) {
    return train_as<Precision>(mesh, chosen(policy), training, hooks, options, launch);
}

}  // namespace toy SHARDKIT_BUILD
