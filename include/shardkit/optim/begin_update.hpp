// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/optim/step_scalars.hpp>
#include <shardkit/optim/update.hpp>

namespace shardkit {

/// Before a group's pass: counts the step and computes the update for all of `hypers`. Run once, in a stream's order;
/// all pointers lead into the engine's memory.
template <class Rule, class A>
struct BeginUpdate {
    const StepScalars* scalars;
    const typename Rule::Options* options;
    typename Rule::Progress* progress;
    std::span<const ParameterHypers> hypers;
    typename Rule::template Update<A>* updates;

    constexpr void operator()() const {
        if (scalars->skip != 0) { return; }
        Rule::advance(*progress, *options);
        for (std::size_t i = 0; i < hypers.size(); ++i) {
            auto chosen = *options;
            chosen.learning_rate *= hypers[i].learning_rate_scale;
            chosen.weight_decay = hypers[i].weight_decay;
            updates[i] = Rule::template update<A>(*progress, chosen, scalars->gradient_scale);
        }
    }
};

}  // namespace shardkit
