// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/step/model.hpp>

#include "options.hpp"

namespace train_gpt {

/// Biases and norms are not decayed, as usual for GPTs: decay is for matrices.
inline std::vector<sk::ParamGroup> without_decay_of_vectors() {
    const auto vector = [](std::string_view /*path*/, std::string_view parameter) {
        return parameter.ends_with("bias") || parameter.starts_with("norm");
    };
    return {{.matches = vector, .weight_decay = 0.0}};
}

/// AdamW with the command line's options, and its states in `Format`.
template <sk::StateFormat Format>
std::unique_ptr<sk::Optimizer> make_adamw(const sk::Model& model, const Options& options) {
    const sk::AdamWOptions adamw{.learning_rate = options.learning_rate, .weight_decay = options.weight_decay};
    return std::make_unique<sk::AdamW>(model, sk::states_in<Format>, adamw, without_decay_of_vectors());
}

}  // namespace train_gpt
