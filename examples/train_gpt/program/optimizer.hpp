// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/sgd.hpp>

#include "options.hpp"

namespace train_gpt {

namespace sk = shardkit;

/// Momentum of --optimizer sgd.
inline constexpr double sgd_momentum = 0.9;

/// Biases and norms are not decayed, as usual for GPTs: decay is for matrices.
inline std::vector<sk::ParamGroup> without_decay_of_vectors() {
    const auto vector = [](std::string_view /*path*/, std::string_view parameter) {
        return parameter.ends_with("bias") || parameter.starts_with("norm");
    };
    return {{.matches = vector, .weight_decay = 0.0}};
}

/// The optimizer that the command line names. A type per optimizer and one switch per step.
template <class... Parts>
class ChosenOptimizer {
  public:
    ChosenOptimizer(const sk::Groups<Parts...>& groups, const Options& options) {
        if (options.optimizer == OptimizerKind::adamw) {
            sk::AdamWOptions adamw;
            adamw.learning_rate = options.learning_rate;
            adamw.weight_decay = options.weight_decay;
            adamw_.emplace(groups, adamw, without_decay_of_vectors());
        } else if (options.optimizer == OptimizerKind::lion) {
            sk::LionOptions lion;
            lion.learning_rate = options.learning_rate;
            lion.weight_decay = options.weight_decay;
            lion_.emplace(groups, lion, without_decay_of_vectors());
        } else {
            sk::SgdOptions sgd;
            sgd.learning_rate = options.learning_rate;
            sgd.rule = sk::Momentum::classical;
            sgd.momentum = sgd_momentum;
            sgd.weight_decay = options.weight_decay;
            sgd_.emplace(groups, sgd, without_decay_of_vectors());
        }
    }

    template <class Reduced>
    void step(Reduced&& reduced, sk::ClipCoefficient coefficient) {
        visit([&](auto& optimizer) { optimizer.step(std::forward<Reduced>(reduced), coefficient); });
    }

    /// f(the optimizer)
    template <class F>
    decltype(auto) visit(F f) {
        return adamw_ ? f(*adamw_) : lion_ ? f(*lion_) : f(*sgd_);
    }

  private:
    std::optional<sk::AdamW<Parts...>> adamw_;
    std::optional<sk::Lion<Parts...>> lion_;
    std::optional<sk::SGD<Parts...>> sgd_;
};

}  // namespace train_gpt
