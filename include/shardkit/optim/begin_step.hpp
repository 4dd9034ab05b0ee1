// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/core/element.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/optim/clip_coefficient.hpp>
#include <shardkit/optim/norm_works.hpp>
#include <shardkit/optim/options.hpp>
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
struct ChosenOptions {
    double learning_rate_scale = 1;
    AnyOptions options{};
};

/// Hyper-parameters changed between steps: written in a stream's order, so that steps already given use the old ones.
struct SetOptions {
    ChosenOptions value;
    ChosenOptions* to;  ///< the engine's memory

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

/// How far the updates of a rule are, without its type.
struct AnyProgress {
    static constexpr std::size_t most_products = 4;

    const RuleFunctions* rule = nullptr;
    ElementType arithmetic = ElementType::fp32;  ///< of the updates
    std::uint64_t steps = 0;
    double products[most_products]{};
};
/// One step's update, as bytes.
struct AnyRuleUpdate {
    static constexpr std::size_t most_bytes = 128;
    static constexpr std::size_t most_states = 4;

    alignas(16) std::byte bytes[most_bytes]{};
};

/// What some of a group's parameters are updated with, and how far they are.
struct ParameterHypers {
    std::uint64_t options = 0;  ///< the number of their ChosenOptions
    AnyProgress progress{};
};

/// A group's place in an optimizer's tables, and the step that it is at.
struct GroupUpdates {
    std::uint32_t first = 0;  ///< of its hypers and updates
    std::uint32_t count = 0;
    std::uint64_t steps = 0;
};

/// What a step of some groups begins with; all pointers lead into the engine's memory.
struct StepTables {
    const StepScalars* scalars;
    const ChosenOptions* options;
    GroupUpdates* groups;
    ParameterHypers* hypers;
    AnyRuleUpdate* updates;  ///< one for each of the hypers
};

/// Before the groups' passes: counts the step of group number `group` and computes the update for each of its hypers.
/// Run by index, in a stream's order. `By`: whose `begin` makes an update.
template <class By>
struct BeginUpdates {
    StepTables of;

    constexpr void operator()(std::uint64_t group) const {
        if (of.scalars->skip != 0) { return; }
        GroupUpdates& its = of.groups[group];
        for (std::uint32_t i = its.first; i < its.first + its.count; ++i) {
            ParameterHypers& hypers = of.hypers[i];
            By::begin(hypers.progress, of.options[hypers.options], *of.options, of.scalars->gradient_scale,
                      of.updates[i]);
        }
        its.steps = of.hypers[its.first].progress.steps;
    }
};

}  // namespace shardkit::detail
