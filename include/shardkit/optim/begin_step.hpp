// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/kernels/update.hpp>
#include <shardkit/optim/clip_coefficient.hpp>
#include <shardkit/optim/norm_works.hpp>
#include <shardkit/step/loss_scale_state.hpp>

namespace shardkit::detail {

/// An optimizer's share of a step that several make together: a CombinedOptimizer's.
struct StepShare {
    std::uint64_t before = 0;  ///< what those before it state of the step; 0: it is the first
    bool adapts = true;        ///< the loss scale: the last one does
};

/// What one step computes for all groups, in the engine's memory.
struct StepScalars {
    double gradient_scale = 1;  ///< one over the divisor and the loss scale, times the clip coefficient
    std::uint32_t skip = 0;     ///< not 0: gradients overflowed under a loss scale, and the step changes nothing
};

/// The hyper-parameters of an optimizer that some parameters share. The learning rate of `options` is looked at in
/// the first of all alone, which is the optimizer's own.
template <class Options>
struct ChosenOptions {
    double learning_rate_scale = 1;
    Options options{};
};

/// Hyper-parameters changed between steps: written in a stream's order, so that steps already given use the old ones.
template <class Options>
struct SetOptions {
    ChosenOptions<Options> value;
    ChosenOptions<Options>* to;  ///< the engine's memory

    constexpr void operator()() const { *to = value; }
};

/// The first of a step's work: the norm's total, what all groups share, and the loss scale's reaction to the norm's
/// verdict. Run once, in a stream's order; all pointers lead into the engine's memory.
struct BeginStep {
    double divisor_scale;
    ClipCoefficient coefficient;
    LossScaleState* loss_scale;  ///< null without one
    detail::StepScalars* scalars;
    bool adapts = true;  ///< the loss scale; false for all but the last of optimizers that share a step
    FinishNorm norm{};   ///< what is left of the norm, if anything

    static constexpr std::size_t most_reads = FinishNorm::most_reads;
    constexpr std::span<const double> reads() const noexcept { return norm.reads(); }
    constexpr void operator()() const { (*this)(norm.sum); }
    constexpr void operator()(const double* read) const {
        norm(read);
        scalars->gradient_scale = detail::unscale(divisor_scale, loss_scale) * coefficient.value();
        scalars->skip = 0;
        if (loss_scale == nullptr) { return; }
        scalars->skip = coefficient.found_inf() == FoundInf::yes ? 1 : 0;
        if (adapts) { loss_scale->update(coefficient.found_inf()); }
    }
};

/// What some of a group's parameters are updated with, and how far they are.
template <class Rule>
struct ParameterHypers {
    std::uint64_t options = 0;  ///< the number of their ChosenOptions
    typename Rule::Progress progress{};
};

/// A group's place in an optimizer's tables, and the step that it is at.
struct GroupUpdates {
    std::uint32_t first = 0;  ///< of its hypers and updates
    std::uint32_t count = 0;
    std::uint64_t steps = 0;
};

/// Before the groups' passes: counts the step of group number `group` and computes the update for each of its hypers.
/// Run by index, in a stream's order; all pointers lead into the engine's memory. `By`: whose `begin` makes an
/// update; the rule itself need not have one.
template <class Rule, class A, class By = Rule>
struct BeginUpdates {
    const detail::StepScalars* scalars;
    const ChosenOptions<typename Rule::Options>* options;
    GroupUpdates* groups;
    ParameterHypers<Rule>* hypers;
    typename Rule::template Update<A>* updates;  ///< one for each of the hypers

    /// Returns the same by another `begin`.
    template <class Other>
    constexpr BeginUpdates<Rule, A, Other> by() const noexcept {
        return {scalars, options, groups, hypers, updates};
    }

    constexpr void operator()(std::uint64_t group) const {
        if (scalars->skip != 0) { return; }
        GroupUpdates& its = groups[group];
        for (std::uint32_t i = its.first; i < its.first + its.count; ++i) {
            const ChosenOptions<typename Rule::Options>& given = options[hypers[i].options];
            if constexpr (requires { By::begin(hypers[i].progress, given, *options, 1.0, updates[i]); }) {
                By::begin(hypers[i].progress, given, *options, scalars->gradient_scale, updates[i]);
            } else {
                auto chosen = given.options;
                chosen.learning_rate = options->options.learning_rate;
                Rule::advance(hypers[i].progress, chosen);
                chosen.learning_rate *= given.learning_rate_scale;
                updates[i] = Rule::template update<A>(hypers[i].progress, chosen, scalars->gradient_scale);
            }
        }
        its.steps = hypers[its.first].progress.steps;
    }
};

}  // namespace shardkit::detail
