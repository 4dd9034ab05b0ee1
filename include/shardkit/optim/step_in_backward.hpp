// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <shardkit/detail/concat.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/optim/optimizer_members.hpp>

// Defines the members of Optimizer that update groups in the backward pass.

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// Those of an Optimizer of one rule.
class UpdatesOfOptimizer final : public UpdatesInBackward {
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
    void check_close(const StepOptions& options, SourceLocation where) override {
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

    Optimizer* optimizer_ = nullptr;
    OptimizerFrame* frame_ = nullptr;
};

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit SHARDKIT_FACE {

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
    if (!in_backward_) { in_backward_ = detail::Owned<detail::UpdatesInBackward>(new Updates); }
    static_cast<Updates&>(*in_backward_).begin(*this, alone("step_in_backward", where), stated, where);
    for (detail::Group& group : spi::groups(groups, where)) { group.step().update_in_backward(); }
    accumulation.backward_.begin(*in_backward_);
}

}  // namespace shardkit SHARDKIT_FACE
