// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "unit/sharded/toy_model.hpp"

namespace toy SHARDKIT_BUILD {

enum class Rule : std::uint8_t { sgd, momentum, nesterov, adamw };
enum class DivideBy : std::uint8_t { nothing, data_ranks, samples };

/// What is trained, and how.
struct Training {
    std::size_t steps = 4;
    std::size_t samples = 120;  ///< of one step, over all ranks and microbatches
    std::size_t microbatches = 1;
    Rule rule = Rule::sgd;
    DivideBy divisor = DivideBy::samples;
    double learning_rate = 0.1;
    double weight_decay = 0.01;
    double clip = 0;  ///< 0: none
};

struct Trained {
    std::vector<std::vector<double>> parameters;
    std::vector<double> norms;  ///< before clipping, one per step
};

/// The same training as plain loops over whole tensors in fp64, without the library.
inline Trained train_serially(const Training& training, std::size_t data_ranks) {
    Trained result;
    std::vector<std::vector<double>> first(tensors.size());
    std::vector<std::vector<double>> second(tensors.size());
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        for (std::size_t i = 0; i < tensors[t].numel; ++i) {
            if (i == 0) { result.parameters.emplace_back(); }
            result.parameters[t].push_back(initial_value(t, i));
        }
        first[t].assign(tensors[t].numel, 0);
        second[t].assign(tensors[t].numel, 0);
    }
    const double divisor = training.divisor == DivideBy::nothing      ? 1
                           : training.divisor == DivideBy::data_ranks ? static_cast<double>(data_ranks)
                                                                      : static_cast<double>(training.samples);
    const double lr = training.learning_rate;
    const double decay = training.weight_decay;
    for (std::size_t step = 0; step < training.steps; ++step) {
        std::vector<std::vector<double>> g = result.parameters;
        double squares = 0;
        for (std::size_t t = 0; t < g.size(); ++t) {
            for (std::size_t i = 0; i < g[t].size(); ++i) {
                double sum = 0;
                for (std::size_t s = 0; s < training.samples; ++s) {
                    sum += gradient(result.parameters[t][i], t, i, step, s);
                }
                g[t][i] = sum / divisor;
                squares += g[t][i] * g[t][i];
            }
        }
        const double norm = std::sqrt(squares);
        result.norms.push_back(norm);
        const double clip = training.clip > 0 ? std::min(1.0, training.clip / (norm + 1e-6)) : 1.0;
        const double n = static_cast<double>(step + 1);
        for (std::size_t t = 0; t < g.size(); ++t) {
            for (std::size_t i = 0; i < g[t].size(); ++i) {
                double& p = result.parameters[t][i];
                double& m = first[t][i];
                double& v = second[t][i];
                double d = clip * g[t][i];
                if (training.rule == Rule::adamw) {
                    p -= lr * decay * p;
                    m = 0.9 * m + (1 - 0.9) * d;
                    v = 0.999 * v + (1 - 0.999) * d * d;
                    p -= lr * (m / (1 - std::pow(0.9, n))) / (std::sqrt(v / (1 - std::pow(0.999, n))) + 1e-8);
                    continue;
                }
                d += decay * p;
                if (training.rule != Rule::sgd) {
                    m = 0.9 * m + d;
                    d = training.rule == Rule::nesterov ? d + 0.9 * m : m;
                }
                p -= lr * d;
            }
        }
    }
    return result;
}

}  // namespace toy SHARDKIT_BUILD
