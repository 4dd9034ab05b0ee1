// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/vector_constexpr.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/step/accumulation.hpp>

namespace shardkit {

/// A training step that is said and not run: the verbs of a trainer by the groups' numbers, over groups without
/// memory. What they make a step communicate follows from the rows that the groups' stores execute.
///     DryStep step(groups);
///     step.unshard(0).gradients(0).reshard(0).add(0, Microbatch::last).reduce().global_norm().step();
///     const Schedule schedule = step.schedule();
/// Works in constant expressions; says in any order what it is told, which is for `check` to judge.
/// Cost:    arithmetic
/// @throws  std::invalid_argument, where a verb is called for a group that the model does not have
class DryStep {
  public:
    SHARDKIT_VECTOR_CONSTEXPR explicit DryStep(std::span<const GroupDescription> groups) {
        for (const GroupDescription& group : groups) {
            groups_.push_back({detail::GroupRows(group), detail::GroupRows(group).rests_current()});
        }
    }

    /// A window is asked for: its gather starts, where the full copy is not current. It keeps the copy until it ends.
    SHARDKIT_VECTOR_CONSTEXPR DryStep& begin_unshard(std::size_t group,
                                                     SourceLocation where = SourceLocation::current()) {
        State& its = of(group, where);
        if (!its.current) { add_op(Act::gather, group, window_microbatch(its)); }
        its.current = true;
        ++its.windows;
        return *this;
    }
    /// It shows the full parameters.
    SHARDKIT_VECTOR_CONSTEXPR DryStep& wait(std::size_t group, SourceLocation where = SourceLocation::current()) {
        return add_op(Act::use, group, window_microbatch(of(group, where)));
    }
    /// Both.
    SHARDKIT_VECTOR_CONSTEXPR DryStep& unshard(std::size_t group, SourceLocation where = SourceLocation::current()) {
        return begin_unshard(group, where).wait(group, where);
    }
    /// It ends.
    SHARDKIT_VECTOR_CONSTEXPR DryStep& reshard(std::size_t group, SourceLocation where = SourceLocation::current()) {
        State& its = of(group, where);
        add_op(Act::close, group, window_microbatch(its));
        if (its.windows > 0 && --its.windows == 0 && its.rows.leases_full) { its.current = false; }
        return *this;
    }
    /// A gradient buffer is taken for a microbatch.
    SHARDKIT_VECTOR_CONSTEXPR DryStep& gradients(std::size_t group,
                                                 SourceLocation where = SourceLocation::current()) {
        return add_op(Act::zero, group, of(group, where).added);
    }
    /// It is handed back; behind the last one the rest of the group's reduction runs too.
    SHARDKIT_VECTOR_CONSTEXPR DryStep& add(std::size_t group, Microbatch microbatch = Microbatch::more,
                                           SourceLocation where = SourceLocation::current()) {
        State& its = of(group, where);
        add_op(Act::add, group, its.added);
        if (its.rows.reduces_each) { add_op(Act::reduce, group, its.added); }
        ++its.added;
        return microbatch == Microbatch::last ? finish(group) : *this;
    }
    /// A microbatch in which the rank did not use the group.
    SHARDKIT_VECTOR_CONSTEXPR DryStep& add_zero(std::size_t group, Microbatch microbatch = Microbatch::more,
                                                SourceLocation where = SourceLocation::current()) {
        return gradients(group, where).add(group, microbatch, where);
    }
    /// The group has no gradient in this step.
    SHARDKIT_VECTOR_CONSTEXPR DryStep& skip(std::size_t group, SourceLocation where = SourceLocation::current()) {
        of(group, where).skipped = true;
        return add_op(Act::skip, group, 0);
    }
    /// Every microbatch of the group is in.
    SHARDKIT_VECTOR_CONSTEXPR DryStep& finish(std::size_t group, SourceLocation where = SourceLocation::current()) {
        State& its = of(group, where);
        if (its.finished || its.added == 0) { return *this; }
        its.finished = true;
        const std::uint32_t last = its.added - 1;
        if (!its.rows.reduces_each) { add_op(Act::reduce, group, last); }
        if (its.rows.reduces_further) { add_op(Act::all_reduce, group, last); }
        return *this;
    }
    /// Every microbatch of every group is in.
    SHARDKIT_VECTOR_CONSTEXPR DryStep& reduce() {
        for (std::size_t group = 0; group < groups_.size(); ++group) { finish(group); }
        return *this;
    }
    SHARDKIT_VECTOR_CONSTEXPR DryStep& global_norm() { return add_op(Act::norm, 0, 0); }
    /// The optimizer's step for one group.
    SHARDKIT_VECTOR_CONSTEXPR DryStep& update(std::size_t group, SourceLocation where = SourceLocation::current()) {
        State& its = of(group, where);
        add_op(Act::update, group, 0);
        if (its.rows.gathers) { its.current = false; }
        return *this;
    }
    /// The optimizer's step for all that have gradients.
    SHARDKIT_VECTOR_CONSTEXPR DryStep& step() {
        for (std::size_t group = 0; group < groups_.size(); ++group) {
            if (groups_[group].rows.trainable && !groups_[group].skipped) { update(group); }
        }
        return *this;
    }

    SHARDKIT_VECTOR_CONSTEXPR Schedule schedule() const { return schedule_; }

  private:
    struct State {
        detail::GroupRows rows;
        bool current = false;     // the full copy
        std::size_t windows = 0;  // that were asked for and have not ended
        std::uint32_t added = 0;
        bool skipped = false;
        bool finished = false;
    };

    SHARDKIT_VECTOR_CONSTEXPR State& of(std::size_t group, SourceLocation where) {
        if (group >= groups_.size()) {
            throw_invalid_argument(where, "DryStep: group ", group, " given, expected one below ", groups_.size());
        }
        return groups_[group];
    }
    SHARDKIT_VECTOR_CONSTEXPR DryStep& add_op(Act act, std::size_t group, std::uint32_t microbatch) {
        schedule_.add({act, static_cast<std::uint32_t>(group), microbatch});
        return *this;
    }
    /// Of a group without gradients: the one that not all others have added.
    SHARDKIT_VECTOR_CONSTEXPR std::uint32_t window_microbatch(const State& group) const {
        const auto counts = [](const State& its) { return its.rows.trainable && !its.skipped; };
        if (counts(group)) { return group.added; }
        std::uint32_t least = std::numeric_limits<std::uint32_t>::max();
        for (const State& its : groups_) {
            if (counts(its) && its.added < least) { least = its.added; }
        }
        return least == std::numeric_limits<std::uint32_t>::max() ? 0 : least;
    }

    std::vector<State> groups_;
    Schedule schedule_;
};

/// What `layered_step` assumes of a trainer.
struct LayeredStep {
    std::size_t microbatches = 1;
    std::size_t norms = 1;  ///< global_norm calls
};

/// The step of a model whose groups are used in order and then, for the backward pass, in reverse: what
/// most trainers do. The last group's forward and backward pass share a window; the backward pass ends with the first
/// group that trains, and goes through frozen ones above it without gradients.
SHARDKIT_VECTOR_CONSTEXPR Schedule layered_step(std::span<const GroupDescription> groups,
                                                const LayeredStep& options = {}) {
    DryStep step(groups);
    std::size_t lowest = 0;
    while (lowest < groups.size() && !groups[lowest].trainable) { ++lowest; }
    for (std::size_t m = 0; m < options.microbatches; ++m) {
        const Microbatch microbatch = m + 1 == options.microbatches ? Microbatch::last : Microbatch::more;
        for (std::size_t g = 0; g + 1 < groups.size(); ++g) { step.unshard(g).reshard(g); }
        for (std::size_t g = groups.size(); g-- > 0 && (g >= lowest || g + 1 == groups.size());) {
            step.unshard(g);
            if (groups[g].trainable) { step.gradients(g); }
            step.reshard(g);
            if (groups[g].trainable) { step.add(g, microbatch); }
        }
    }
    step.reduce();
    for (std::size_t n = 0; n < options.norms; ++n) { step.global_norm(); }
    step.step();
    return step.schedule();
}

}  // namespace shardkit
