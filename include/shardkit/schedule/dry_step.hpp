// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <shardkit/core/constexpr_vector.hpp>
#include <shardkit/core/dynamic.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/schedule/schedule.hpp>

namespace shardkit::schedule {

/// Builds the schedule of a training step without running it: calls name the verbs of a trainer and the groups'
/// numbers, for groups without memory. The step's communication follows from the rows that the groups' stores
/// execute.
///     DryStep step(groups, microbatches);
///     step.unshard(0).gradients(0).reshard(0).add(0).reduce().global_norm().step();
///     const Schedule schedule = step.schedule();
/// Works in constant expressions. Any order of calls is accepted; `check` finds errors.
/// Cost:    arithmetic
/// @throws  std::invalid_argument when a verb is called for a group that the model does not have
class DryStep {
  public:
    /// `microbatches` is how often each group is added.
    SHARDKIT_CONSTEXPR_VECTOR explicit DryStep(std::span<const planner::GroupDescription> groups,
                                               std::size_t microbatches = 1)
        : groups_(groups), microbatches_(microbatches) {}

    /// For an unknown number of microbatches: `finish` or `reduce` ends them.
    SHARDKIT_CONSTEXPR_VECTOR DryStep(std::span<const planner::GroupDescription> groups, UntilReduced)
        : DryStep(groups, 0) {}

    /// Asks for a window, whose gather starts if the full copy is stale. The copy is kept until the window ends.
    SHARDKIT_CONSTEXPR_VECTOR DryStep& begin_unshard(std::size_t group,
                                                     SourceLocation where = SourceLocation::current()) {
        const detail::GroupStep& its = of(group, where);
        if (detail::due_gather(its, groups_.rows(group))) { add_op(Act::gather, group, window_microbatch(group)); }
        ++groups_[group].asked;
        return *this;
    }
    /// Makes a use, close, zero, skip or update of the group, as the verbs below do.
    SHARDKIT_CONSTEXPR_VECTOR DryStep& make(Act act, std::size_t group,
                                            SourceLocation where = SourceLocation::current()) {
        const detail::GroupStep& its = of(group, where);
        const bool of_window = act == Act::use || act == Act::close;
        return add_op(act, group, of_window ? window_microbatch(group) : act == Act::zero ? its.added : 0);
    }
    /// Shows the full parameters in the window.
    SHARDKIT_CONSTEXPR_VECTOR DryStep& wait(std::size_t group, SourceLocation where = SourceLocation::current()) {
        return make(Act::use, group, where);
    }
    /// Asks for a window and shows the full parameters.
    SHARDKIT_CONSTEXPR_VECTOR DryStep& unshard(std::size_t group, SourceLocation where = SourceLocation::current()) {
        return begin_unshard(group, where).wait(group, where);
    }
    /// Ends the window.
    SHARDKIT_CONSTEXPR_VECTOR DryStep& reshard(std::size_t group, SourceLocation where = SourceLocation::current()) {
        return make(Act::close, group, where);
    }
    /// Lets each group be updated behind its last reduction, as Optimizer::step_in_backward does.
    constexpr DryStep& step_in_backward() {
        in_backward_ = true;
        return *this;
    }
    /// Takes a gradient buffer for a microbatch.
    SHARDKIT_CONSTEXPR_VECTOR DryStep& gradients(std::size_t group,
                                                 SourceLocation where = SourceLocation::current()) {
        return make(Act::zero, group, where);
    }
    /// Adds the gradients of the buffer. After the last microbatch, the rest of the group's reduction follows.
    SHARDKIT_CONSTEXPR_VECTOR DryStep& add(std::size_t group, SourceLocation where = SourceLocation::current()) {
        add_op(Act::add, group, of(group, where).added).reduce_due(group);
        return groups_[group].added == microbatches_ ? finish(group) : *this;
    }
    /// Adds zeros for a microbatch in which the rank did not use the group.
    SHARDKIT_CONSTEXPR_VECTOR DryStep& add_zero(std::size_t group, SourceLocation where = SourceLocation::current()) {
        return gradients(group, where).add(group, where);
    }
    /// Skips the group: it has no gradient in this step.
    SHARDKIT_CONSTEXPR_VECTOR DryStep& skip(std::size_t group, SourceLocation where = SourceLocation::current()) {
        return make(Act::skip, group, where);
    }
    /// Declares that all microbatches of the group were added.
    SHARDKIT_CONSTEXPR_VECTOR DryStep& finish(std::size_t group, SourceLocation where = SourceLocation::current()) {
        if (of(group, where).added == 0) { return *this; }
        groups_[group] = detail::apply_finish(groups_[group]).next;
        reduce_due(group);
        return in_backward_ && !groups_[group].updated ? update(group, where) : *this;
    }
    /// Declares that all microbatches of all groups were added.
    constexpr DryStep& reduce() {
        for (std::size_t group = 0; group < groups_.size(); ++group) { finish(group); }
        return *this;
    }
    SHARDKIT_CONSTEXPR_VECTOR DryStep& global_norm() {
        schedule_.add({Act::norm});
        return *this;
    }
    /// Makes the acts of an optimizer of whole matrices on that many batches: a planner::MatrixPlan's.
    SHARDKIT_CONSTEXPR_VECTOR DryStep& matrices(std::size_t batches) {
        detail::for_each_batch_act(batches, [&](Act act, std::uint32_t number) { batch(act, number); });
        return *this;
    }
    /// Makes one act on a batch of matrices, before the updates that were made last: it is a part of the same call.
    SHARDKIT_CONSTEXPR_VECTOR DryStep& batch(Act act, std::uint32_t number) {
        std::size_t at = schedule_.size();
        while (at > 0 && schedule_[at - 1].act == Act::update) { --at; }
        schedule_.insert(at, {act, 0, number});
        return *this;
    }
    /// Makes the optimizer's step for one group.
    SHARDKIT_CONSTEXPR_VECTOR DryStep& update(std::size_t group, SourceLocation where = SourceLocation::current()) {
        return make(Act::update, group, where);
    }
    /// Makes the optimizer's step for all groups that have gradients and are not updated yet.
    constexpr DryStep& step() {
        for (std::size_t group = 0; group < groups_.size(); ++group) {
            if (has_gradients(group) && !groups_[group].updated) { update(group); }
        }
        return *this;
    }

    SHARDKIT_CONSTEXPR_VECTOR Schedule schedule() const { return schedule_; }

  private:
    SHARDKIT_CONSTEXPR_VECTOR const detail::GroupStep& of(std::size_t group, SourceLocation where) const {
        require_argument(group < groups_.size(), where, "DryStep: group ", group, " given, expected one below ",
                         groups_.size());
        return groups_[group];
    }
    /// Without a schedule that leads, the last window's end releases the copy.
    SHARDKIT_CONSTEXPR_VECTOR DryStep& add_op(Act act, std::size_t group, std::uint32_t microbatch) {
        schedule_.add({act, static_cast<std::uint32_t>(group), microbatch});
        const detail::Applied applied = groups_.apply(act, group, microbatch);
        if (act == Act::close && applied.gives_back) { groups_[group] = detail::given_back(applied.next); }
        return *this;
    }
    SHARDKIT_CONSTEXPR_VECTOR DryStep& reduce_due(std::size_t group) {
        while (const auto act = detail::due_reduction(groups_[group], groups_.rows(group))) {
            add_op(*act, group, groups_[group].added - 1);
        }
        return *this;
    }
    SHARDKIT_CONSTEXPR_VECTOR bool has_gradients(std::size_t group) const {
        return groups_.rows(group).trainable && !groups_[group].skipped;
    }
    /// Returns the group's microbatch; for a group without gradients the first one that some other group has not
    /// added yet.
    SHARDKIT_CONSTEXPR_VECTOR std::uint32_t window_microbatch(std::size_t group) const {
        if (has_gradients(group)) { return groups_[group].added; }
        constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
        std::uint32_t least = none;
        for (std::size_t g = 0; g < groups_.size(); ++g) {
            if (has_gradients(g)) { least = std::min(least, groups_[g].added); }
        }
        return least == none ? 0 : least;
    }

    detail::ModelStep groups_;
    std::size_t microbatches_;
    bool in_backward_ = false;
    Schedule schedule_;
};

/// What `layered_step` assumes about a trainer.
struct LayeredStep {
    std::size_t microbatches = 1;
    std::size_t norms = 1;  ///< global_norm calls
};

/// Returns the step of a model whose groups are used in order, and then in reverse for the backward pass, as in most
/// trainers. The last group's forward and backward pass share a window. The backward pass goes down to the first
/// trainable group, and passes frozen ones above it without gradients.
SHARDKIT_CONSTEXPR_VECTOR Schedule layered_step(std::span<const planner::GroupDescription> groups,
                                                const LayeredStep& options = {}) {
    DryStep step(groups, options.microbatches);
    std::size_t lowest = 0;
    while (lowest < groups.size() && !groups[lowest].trainable) { ++lowest; }
    for (std::size_t m = 0; m < options.microbatches; ++m) {
        for (std::size_t g = 0; g + 1 < groups.size(); ++g) { step.unshard(g).reshard(g); }
        for (std::size_t g = groups.size(); g-- > 0 && (g >= lowest || g + 1 == groups.size());) {
            step.unshard(g);
            if (groups[g].trainable) { step.gradients(g); }
            step.reshard(g);
            if (groups[g].trainable) { step.add(g); }
        }
    }
    step.reduce();
    for (std::size_t n = 0; n < options.norms; ++n) { step.global_norm(); }
    step.step();
    return step.schedule();
}

}  // namespace shardkit::schedule
