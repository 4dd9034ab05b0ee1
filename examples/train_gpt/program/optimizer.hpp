// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <shardkit/backend/cblas/cblas_products.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/step/model.hpp>

#include "adamw.hpp"
#include "options.hpp"

namespace train_gpt {

/// The optimizer that the command line names.
/// @pre --states is full with other optimizers than AdamW, and with fp64; see validate(const Options&)
inline std::unique_ptr<sk::Optimizer> make_optimizer(const sk::Model& model, const Options& options) {
    using enum sk::StateFormat;
    if (options.states == bf16) { return make_adamw<bf16>(model, options); }
    if (options.states == block8) { return make_adamw<block8>(model, options); }
    if (options.optimizer == OptimizerKind::adamw) { return make_adamw<full>(model, options); }
    if (options.optimizer == OptimizerKind::lion) {
        const sk::LionOptions lion{.learning_rate = options.learning_rate, .weight_decay = options.weight_decay};
        return std::make_unique<sk::Lion>(model, lion, without_decay_of_vectors());
    }
    if (options.optimizer == OptimizerKind::muon) {
        const sk::AdamWOptions rest{.learning_rate = options.learning_rate, .weight_decay = options.weight_decay};
        const sk::MuonOptions muon{.learning_rate = options.learning_rate,
                                   .weight_decay = options.weight_decay,
                                   .scale = sk::MuonScale::moonlight};  // so that one learning rate serves both
        return std::make_unique<sk::Muon>(model, sk::CblasProducts{}, muon, rest, sk::Matrices{},
                                          without_decay_of_vectors());
    }
    const sk::SgdOptions sgd{.learning_rate = options.learning_rate,
                             .rule = sk::Momentum::classical,
                             .momentum = 0.9,
                             .weight_decay = options.weight_decay};
    return std::make_unique<sk::SGD>(model, sgd, without_decay_of_vectors());
}

}  // namespace train_gpt
