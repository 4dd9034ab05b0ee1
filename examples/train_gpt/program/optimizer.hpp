// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include <shardkit/backend/cblas/cblas_products.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/muon.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/step/model.hpp>

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

/// AdamW with the command line's options, and its states in `Format`.
template <sk::StateFormat Format, class Engine, class Precision>
std::unique_ptr<sk::Optimizer<Engine>> make_adamw(const sk::Model<Engine, Precision>& model, const Options& options) {
    sk::AdamWOptions adamw;
    adamw.learning_rate = options.learning_rate;
    adamw.weight_decay = options.weight_decay;
    return std::make_unique<sk::AdamW<Engine, Precision, Format>>(model, adamw, without_decay_of_vectors());
}

/// The optimizer that the command line names.
/// @pre --states is full with other optimizers than AdamW, and with fp64; see validate(const Options&)
template <class Engine, class Precision>
std::unique_ptr<sk::Optimizer<Engine>> make_optimizer(const sk::Model<Engine, Precision>& model,
                                                      const Options& options) {
    if constexpr (sizeof(typename Precision::Master) == sizeof(float)) {
        using enum sk::StateFormat;
        if (options.states == bf16) { return make_adamw<bf16>(model, options); }
        if (options.states == block8) { return make_adamw<block8>(model, options); }
    }
    if (options.optimizer == OptimizerKind::adamw) { return make_adamw<sk::StateFormat::full>(model, options); }
    if (options.optimizer == OptimizerKind::lion) {
        sk::LionOptions lion;
        lion.learning_rate = options.learning_rate;
        lion.weight_decay = options.weight_decay;
        return std::make_unique<sk::Lion<Engine, Precision>>(model, lion, without_decay_of_vectors());
    }
    if (options.optimizer == OptimizerKind::muon) {
        sk::AdamWOptions rest;
        rest.learning_rate = options.learning_rate;
        rest.weight_decay = options.weight_decay;
        sk::MuonOptions muon;
        muon.learning_rate = options.learning_rate;
        muon.weight_decay = options.weight_decay;
        muon.scale = sk::MuonScale::moonlight;  // so that one learning rate serves both
        return std::make_unique<sk::Muon<Engine, Precision>>(model, sk::CblasProducts{}, muon, rest, sk::Matrices{},
                                                             without_decay_of_vectors());
    }
    sk::SgdOptions sgd;
    sgd.learning_rate = options.learning_rate;
    sgd.rule = sk::Momentum::classical;
    sgd.momentum = sgd_momentum;
    sgd.weight_decay = options.weight_decay;
    return std::make_unique<sk::SGD<Engine, Precision>>(model, sgd, without_decay_of_vectors());
}

}  // namespace train_gpt
