// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include <shardkit/detail/concat.hpp>
#include <shardkit/optim/optimizer.hpp>

// Defines the members of Optimizer that update groups in the backward pass.

namespace shardkit SHARDKIT_BUILD {

inline void Optimizer::refuse_all_gradients(std::string_view verb, const StepOptions& options, SourceLocation where) {
    if (options.max_norm == unlimited && options.loss_scale == nullptr) { return; }
    throw_usage_error(
        where, "optimizer ", verb, ": ",
        options.loss_scale != nullptr ? std::string("a loss scale")
                                      : detail::concat("max_norm ", detail::number_text(options.max_norm)),
        " needs the gradients of all groups before the first update, and a step in backward updates each "
        "group behind its own reduction; expected one of both");
}

inline void Optimizer::step_in_backward(Accumulation& accumulation, const StepOptions& options,
                                        SourceLocation where) {
    require_between_steps("step_in_backward", where);
    refuse_all_gradients("step_in_backward", options, where);
    if (detail::Access::backward(accumulation).get() != nullptr) {
        detail::Group::refuse_use(
            where, "optimizer step_in_backward: another optimizer updates the groups of this accumulation already");
    }
    const Model& groups = detail::Access::groups(accumulation, where);
    require_own(groups, where);
    for (detail::Group& group : detail::Access::each(groups, where)) {
        if (!group.trainable()) { continue; }
        if (group.directed().led()) { group.refuse_group(where, "step_in_backward while a schedule is followed"); }
        if (group.step().added() > 0 || group.step().taken()) {
            group.refuse_group(where, "step_in_backward after gradients were handed out; expected it before");
        }
        if (group.microbatches() == 0) {
            group.refuse_group(where,
                               "step_in_backward with microbatches until_reduced, whose last one is not known; "
                               "expected their number, as Accumulation{model, microbatches}");
        }
    }
    detail::StatedStep stated = detail::state_divisor(groups, options.divisor, {}, where);
    stated.max_norm = unlimited;
    backward_ = Backward{begin_backward(stated, where), stated.divisor, where};
    for (detail::Group& group : detail::Access::each(groups, where)) { group.step().update_in_backward(); }
    detail::Access::backward(accumulation).begin(*this);
}

inline void Optimizer::update_group(detail::Group& group, SourceLocation where) {
    require_here(where);
    std::size_t number = 0;
    for (const detail::Group& each : detail::Access::each(model_, where)) {
        if (&each == &group) { break; }
        ++number;
    }
    group.announce_update(where);
    group.end_update(backward_->stated, hash_of(choices(number)), where);
    flush();
    backward_->left = &group;
}

inline void Optimizer::flush() {
    if (backward_->left == nullptr) { return; }
    detail::Group& group = *std::exchange(backward_->left, nullptr);
    run_alone(group);
    group.gradients().release();
}

// Groups that take part in a backward pass live, so that walking them throws nothing.
// NOLINTNEXTLINE(bugprone-exception-escape)
inline void Optimizer::end_backward(detail::BackwardUpdates::End end) noexcept {
    const SourceLocation where = backward_->where;
    backward_.reset();
    if (end == detail::BackwardUpdates::End::complete) { return; }
    for (detail::Group& group : detail::Access::each(model_, where)) {
        if (group.step().updated()) { tear(group, detail::TornValues::step, where); }
    }
}

inline GlobalNorm Optimizer::close_backward(Accumulation&& accumulation, const StepOptions& options,
                                            SourceLocation where) {
    if (detail::Access::backward(accumulation).get() != this) {
        detail::Group::refuse_use(
            where, "optimizer step: another optimizer updates the groups of this accumulation; expected its step");
    }
    refuse_all_gradients("step", options, where);
    static_cast<void>(detail::rank_of(model_, where));
    const double divisor = detail::divisor_of(model_, options.divisor, where);
    if (divisor != backward_->divisor) {
        throw_usage_error(where, "optimizer step: a divisor of ", detail::number_text(divisor),
                          ", and step_in_backward at ", backward_->where.file, ":", backward_->where.line, " gave ",
                          detail::number_text(backward_->divisor), "; expected the same");
    }
    const detail::StepScope closed = detail::Access::finish(std::move(accumulation), where);
    return detail::Access::make<GlobalNorm>();
}

}  // namespace shardkit SHARDKIT_BUILD
