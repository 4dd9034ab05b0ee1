// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/core/validate_number.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/identity.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/optim/begin_step.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/frame_members.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/optim/optimizer_frame.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/sharded/torn_values.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/step/step_scope.hpp>

// Defines the members of Optimizer.

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// The updates of an Optimizer of one rule in backward passes.
class UpdatesOfOptimizer final : public BackwardUpdates {
  public:
    /// Begins a step.
    void begin(Optimizer& optimizer, OptimizerFrame& frame, const StatedStep& stated, SourceLocation where) {
        optimizer_ = &optimizer;
        frame_ = &frame;
        optimizer.backward_ = {frame.begin_backward(stated, where), stated.divisor, where};
    }
    static void refuse_all_gradients(std::string_view verb, const StepOptions& options, SourceLocation where) {
        if (options.max_norm == unlimited && options.loss_scale == nullptr) { return; }
        throw_usage_error(where, "optimizer ", verb, ": ",
                          options.loss_scale != nullptr ? std::string("a loss scale")
                                                        : concat("max_norm ", number_text(options.max_norm)),
                          " needs the gradients of all groups before the first update, and a step in backward "
                          "updates each group behind its own reduction; expected one of both");
    }
    /// Checks that these options close the step as it began.
    void check_close(const StepOptions& options, SourceLocation where) {
        refuse_all_gradients("step", options, where);
        static_cast<void>(rank_of(optimizer_->model_, where));
        const double divisor = divisor_of(optimizer_->model_, options.divisor, where);
        const auto& begun = *optimizer_->backward_;
        if (divisor != begun.divisor) {
            throw_usage_error(where, "optimizer step: a divisor of ", number_text(divisor),
                              ", and step_in_backward at ", begun.where.file, ":", begun.where.line, " gave ",
                              number_text(begun.divisor), "; expected the same");
        }
    }

  private:
    void check_group(const Group& group, SourceLocation where) const override {
        if (group.trainable()) { group.begin_update(where); }
    }
    void update_group(Group& group, SourceLocation where) override {
        optimizer_->require_here(where);
        std::size_t number = 0;
        for (const Group& each : spi::groups(optimizer_->model_, where)) {
            if (&each == &group) { break; }
            ++number;
        }
        group.announce_update(where);
        group.end_update(optimizer_->backward_->stated, frame_->choices(number), where);
        flush();
        optimizer_->backward_->left = &group;
    }
    void flush() override {
        if (optimizer_->backward_->left == nullptr) { return; }
        Group& group = *std::exchange(optimizer_->backward_->left, nullptr);
        frame_->run_alone(group);
        group.gradients().release();
    }
    // Groups that take part in a backward pass live, so that walking them throws nothing.
    // NOLINTNEXTLINE(bugprone-exception-escape)
    void end_backward(BackwardUpdates::End end) noexcept override {
        const SourceLocation where = optimizer_->backward_->where;
        optimizer_->backward_.reset();
        if (end == BackwardUpdates::End::complete) { return; }
        for (Group& group : spi::groups(optimizer_->model_, where)) {
            if (group.step().updated()) { frame_->tear(group, TornValues::step, where); }
        }
    }

    Optimizer* optimizer_ = nullptr;
    OptimizerFrame* frame_ = nullptr;
};

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit SHARDKIT_FACE {

SHARDKIT_CORE_INLINE Optimizer::Optimizer(const Model& model) : model_(model), identity_(detail::new_identity()) {}
SHARDKIT_CORE_INLINE Optimizer::Optimizer(Optimizer&&) noexcept = default;
SHARDKIT_CORE_INLINE Optimizer& Optimizer::operator=(Optimizer&& other) noexcept {
    if (backward_) { detail::end_program("an optimizer was assigned to during a step in backward"); }
    model_ = std::move(other.model_);
    identity_ = other.identity_;
    left_out_ = std::move(other.left_out_);
    backward_ = other.backward_;
    in_backward_ = std::move(other.in_backward_);
    return *this;
}
SHARDKIT_CORE_INLINE Optimizer::~Optimizer() {
    if (backward_) { detail::end_program("an optimizer ended or was moved during a step in backward"); }
}
SHARDKIT_CORE_INLINE void Optimizer::leave(std::string parameter) {
    if (left_out_.empty()) { left_out_ = std::move(parameter); }
}
SHARDKIT_CORE_INLINE void Optimizer::require_between_steps(std::string_view verb, SourceLocation where) const {
    require_here(where);
    if (!backward_) { return; }
    throw_usage_error(where, "optimizer: ", verb, " during the step in backward that began at ",
                      backward_->where.file, ":", backward_->where.line,
                      "; expected before it, or after optimizer.step(std::move(accumulation))");
}
SHARDKIT_CORE_INLINE void Optimizer::set_learning_rate_factor(double factor, SourceLocation where) {
    detail::validate_number("optimizer", "the learning rates' factor", factor, rules::not_negative, where);
    set_rates(factor, 1, where);
}
SHARDKIT_CORE_INLINE void Optimizer::step_alone(Reduced&& reduced, SourceLocation where) {
    // Before the norm: a rank that is refused must not have taken part in a collective that it will repeat.
    const bool scaled = reduced.has_loss_scale();
    check_step(reduced.groups(where), scaled ? schedule::Act::norm : schedule::Act::update, where);
    update(std::move(reduced),
           scaled ? clip(detail::global_norm(reduced, NormKind::two, detail::NormFor::step, where), unlimited, where)
                  : ClipCoefficient{},
           where);
}
SHARDKIT_CORE_INLINE GlobalNorm Optimizer::step(Accumulation&& accumulation, const StepOptions& options,
                                                SourceLocation where) {
    detail::validate_max_norm(options.max_norm, "optimizer step", where);
    if (accumulation.backward_.get() != nullptr) { return close_backward(std::move(accumulation), options, where); }
    check_model(accumulation.groups(where), where);
    Reduced reduced = options.loss_scale == nullptr
                          ? reduce(std::move(accumulation), options.divisor, where)
                          : reduce(std::move(accumulation), options.divisor, *options.loss_scale, where);
    check_step(reduced.groups(where), schedule::Act::norm, where);
    const GlobalNorm norm = detail::global_norm(reduced, options.norm, detail::NormFor::step, where);
    update(std::move(reduced), clip(norm, options.max_norm, where), where);
    return norm;
}

SHARDKIT_CORE_INLINE void Optimizer::step_clipped(Reduced&& reduced, const ClipCoefficient& coefficient,
                                                  SourceLocation where) {
    check_step(reduced.groups(where), schedule::Act::update, where);
    if (coefficient.total == nullptr && reduced.has_loss_scale()) {
        detail::refuse_use(where,
                           "optimizer step: a coefficient without a norm, for gradients with a loss scale, would "
                           "hide an overflow; expected clip(norm, max_norm), clip(norm, unlimited), or none");
    }
    if (coefficient.gradients != 0 && coefficient.gradients != reduced.identity()) {
        detail::refuse_use(where,
                           "optimizer step: the clip coefficient is of the norm of other gradients than these: "
                           "take global_norm of what this step consumes");
    }
    update(std::move(reduced), coefficient, where);
}

SHARDKIT_CORE_INLINE void Optimizer::require_here(SourceLocation where) const {
    if (!model_.valid()) {
        detail::refuse_use(where, "an optimizer was used after it was moved from: use the one that it was moved to");
    }
}

SHARDKIT_CORE_INLINE void Optimizer::require_own(const Model& gradients, SourceLocation where) const {
    require_here(where);
    if (!left_out_.empty()) {
        throw_usage_error(where, "optimizer step: '", left_out_,
                          "' is another optimizer's (ParamGroup::updated_by), "
                          "and the gradients are consumed: expected the step of a CombinedOptimizer of both");
    }
    if (!(gradients == model_)) {
        detail::refuse_use(where,
                           "optimizer step: these gradients belong to other groups than the optimizer's model");
    }
}

SHARDKIT_CORE_INLINE void Optimizer::step_in_backward(Accumulation& accumulation, const StepOptions& options,
                                                      SourceLocation where) {
    using Updates = detail::UpdatesOfOptimizer;
    require_between_steps("step_in_backward", where);
    Updates::refuse_all_gradients("step_in_backward", options, where);
    if (accumulation.backward_.get() != nullptr) {
        detail::refuse_use(
            where, "optimizer step_in_backward: another optimizer updates the groups of this accumulation already");
    }
    const Model& groups = accumulation.groups(where);
    require_own(groups, where);
    for (detail::Group& group : spi::groups(groups, where)) {
        if (!group.trainable()) { continue; }
        if (group.observed().led()) { refuse_group(group, where, "step_in_backward while a schedule is followed"); }
        if (group.step().added() > 0 || group.step().taken()) {
            refuse_group(group, where, "step_in_backward after gradients were handed out; expected it before");
        }
        if (group.microbatches() == 0) {
            refuse_group(group, where,
                         "step_in_backward with microbatches until_reduced, whose last one is not known; "
                         "expected their number, as Accumulation{model, microbatches}");
        }
    }
    detail::StatedStep stated = detail::state_divisor(groups, options.divisor, {}, where);
    stated.max_norm = unlimited;
    if (!in_backward_) { in_backward_ = detail::Owned<Updates>(new Updates); }
    in_backward_->begin(*this, alone("step_in_backward", where), stated, where);
    for (detail::Group& group : spi::groups(groups, where)) { group.step().update_in_backward(); }
    accumulation.backward_ = detail::BackwardStep(in_backward_.get());
}

SHARDKIT_CORE_INLINE GlobalNorm Optimizer::close_backward(Accumulation&& accumulation, const StepOptions& options,
                                                          SourceLocation where) {
    if (accumulation.backward_.get() != in_backward_.get()) {
        detail::refuse_use(
            where, "optimizer step: another optimizer updates the groups of this accumulation; expected its step");
    }
    in_backward_->check_close(options, where);
    const detail::StepScope closed = std::move(accumulation).finish(where);
    return {};
}

SHARDKIT_CORE_INLINE void Optimizer::check_model(const Model& gradients, SourceLocation where) const {
    require_own(gradients, where);
    for (detail::Group& group : spi::groups(model_, where)) { group.begin_update(where); }
}

SHARDKIT_CORE_INLINE void Optimizer::check_step(const Model& gradients, schedule::Act first,
                                                SourceLocation where) const {
    require_here(where);
    if (!left_out_.empty() || !(gradients == model_)) { check_model(gradients, where); }
    bool expected = false;
    for (detail::Group& group : spi::groups(model_, where)) {
        expected = expected || group.expect_update(first, where);
        group.begin_update(where);
    }
}

SHARDKIT_CORE_INLINE void Optimizer::update(Reduced&& reduced, const ClipCoefficient& coefficient,
                                            SourceLocation where) {
    for (detail::Group& group : spi::groups(model_, where)) { group.announce_update(where); }
    const Reduced consumed(std::move(reduced));
    const detail::StatementHash stated = run(consumed, coefficient, {}, where);
    std::size_t number = 0;
    for (detail::Group& group : spi::groups(model_, where)) { group.end_update(stated, choices(number++), where); }
}
SHARDKIT_CORE_INLINE double Optimizer::learning_rate(SourceLocation where) const {
    return const_cast<Optimizer&>(*this).leading("learning_rate", where).options(where).learning_rate;
}
SHARDKIT_CORE_INLINE void Optimizer::set_learning_rate(double learning_rate, SourceLocation where) {
    detail::OptimizerFrame& first = leading("set_learning_rate", where);
    const auto all = parts();
    if (all.size() == 1) {
        first.require_between_steps("set_learning_rate", where);
        return first.numbers_->set_learning_rate(learning_rate, learning_rate, where);
    }
    const double given = first.given_learning_rate();
    if (given == 0) {
        throw_invalid_argument(where, "Muon: set_learning_rate of ", detail::number_text(learning_rate),
                               " where its matrices were given a rate of 0 and AdamW one of ",
                               detail::number_text(all.back()->given_learning_rate()),
                               "; expected set_learning_rate_factor with rates that are given once, or "
                               "set_learning_rate of matrices() and of rest()");
    }
    set_rates(learning_rate, given, where);
}
SHARDKIT_CORE_INLINE void Optimizer::set_rates(double to, double from, SourceLocation where) {
    for (const bool make : {false, true}) {
        for (detail::OptimizerFrame* const part : parts()) {
            part->require_between_steps("set_learning_rate", where);
            const double rate = to * (part->given_learning_rate() / from);
            part->numbers_->require_learning_rate(rate, where);
            if (make) { part->numbers_->set_learning_rate(rate, part->given_learning_rate(), where); }
        }
    }
}
SHARDKIT_CORE_INLINE std::uint64_t Optimizer::steps_of(const detail::Group& group, SourceLocation where) const {
    require_here(where);
    bool known = false;
    for (const detail::Group& each : spi::groups(model_, where)) { known = known || &each == &group; }
    if (!known) { refuse_group(group, where, "steps() of a group that is not one of the optimizer's model"); }
    // Parts whose tensors a load has brought together may have taken different numbers.
    std::uint64_t most = 0;
    for (const detail::OptimizerFrame* const part : const_cast<Optimizer&>(*this).parts()) {
        const std::uint64_t its = part->groups_->steps(group.identity());
        if (its > most) { most = its; }
    }
    return most;
}

}  // namespace SHARDKIT_FACE

#include <shardkit/optim/optimizer_contents.hpp>
