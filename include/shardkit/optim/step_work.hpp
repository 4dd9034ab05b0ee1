// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/update.hpp>
#include <shardkit/step/loss_scale_state.hpp>

namespace shardkit::detail {

/// What one step computes for all groups, in the engine's memory.
struct StepScalars {
    double gradient_scale = 1;  ///< one over the divisor and the loss scale, times the clip coefficient
    std::uint32_t skip = 0;     ///< not 0: gradients overflowed under a loss scale, and the step changes nothing
};

/// Hyper-parameters changed between steps: written in a stream's order, so that steps already given use the old ones.
template <class Options>
struct SetOptions {
    Options value;
    Options* to;  ///< the engine's memory

    constexpr void operator()() const { *to = value; }
};

/// The first of a step's work: what all groups share, and the loss scale's reaction to the norm's verdict. Run once,
/// in a stream's order; all pointers lead into the engine's memory.
struct BeginStep {
    double divisor_scale;
    ClipCoefficient coefficient;
    LossScaleState* loss_scale;  ///< null without one
    StepScalars* scalars;

    constexpr void operator()() const {
        scalars->gradient_scale = detail::unscale(divisor_scale, loss_scale) * coefficient.value();
        scalars->skip = 0;
        if (loss_scale == nullptr) { return; }
        scalars->skip = coefficient.found_inf() == FoundInf::yes ? 1 : 0;
        loss_scale->update(coefficient.found_inf());
    }
};

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

}  // namespace shardkit::detail
