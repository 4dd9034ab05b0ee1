// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cstddef>
#include <string_view>
#include <utility>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/identity.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/group_list.hpp>
#include <shardkit/step/slices.hpp>

// Defines the members of StepScope and Accumulation.

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// Returns the observer of all of the groups, null if there is none.
inline spi::StepObserver* observer_of(const Model& groups, SourceLocation where) {
    spi::StepObserver* first = nullptr;
    std::size_t number = 0;
    for (Group& group : spi::groups(groups, where)) {
        spi::StepObserver* const its = group.observed().any();
        if (number++ == 0) { first = its; }
        if (its != first) {
            refuse_group(group, where,
                         "a schedule is followed, or a step recorded, for some of these groups and not for all");
        }
    }
    return first;
}

SHARDKIT_CORE_INLINE StepScope::StepScope(const Model& groups, std::size_t count, SourceLocation where)
    : groups_(groups), number_(new_identity()) {
    static_cast<void>(detail::rank_of(groups, where));
    static_cast<void>(first_by_slices(groups, where));
    spi::StepObserver* const observer = observer_of(groups, where);
    std::size_t begun = 0;
    try {
        for (Group& group : spi::groups(groups, where)) {
            group.begin_step(number_, count, where);
            ++begun;
        }
        if (observer != nullptr) [[unlikely]] { observer->begin_step(begun, where); }
    } catch (...) {
        for (Group& group : spi::groups(groups, where)) {
            if (begun-- == 0) { break; }
            group.end_step();
        }
        throw;
    }
}

SHARDKIT_CORE_INLINE StepScope::~StepScope() {  // NOLINT(bugprone-exception-escape)
    if (!live()) { return; }
    // The observer is looked up here and not stored: a recorder ends when `record` returns, even before the step
    // does. The groups are alive: one that ends during a step ends the program.
    spi::StepObserver* observer = nullptr;
    for (Group& group : spi::groups(groups_, SourceLocation{})) {
        group.end_step();
        observer = group.observed().in_step();
    }
    if (observer != nullptr) [[unlikely]] { observer->end_step(); }
}

/// Checks that a group can have so many microbatches.
inline void check_number(const Group& group, std::size_t count, SourceLocation where) {
    if (!group.trainable() || group.step().skipped()) { return; }
    static_cast<void>(group.known_microbatches(count, where));
    const std::size_t added = group.step().added();
    if (added > count || (added < count && !group.step().accumulating())) {
        throw_usage_error(where, "'", group.path(), "': set_microbatches(", count, ") after ", added, " were added",
                          group.step().accumulating() ? "" : " and reduced");
    }
}

/// Checks, before a reduction that an update may follow, that the update can be made.
inline void check_update(const BackwardStep& backward, const Group& group, SourceLocation where) {
    if (backward) [[unlikely]] { backward->check_group(group, where); }
}
inline void take(const BackwardStep& backward, Group& group, std::string_view verb, Writes writes,
                 SourceLocation where) {
    if (backward && !group.has_room_for_gradients()) [[unlikely]] { backward->flush(); }
    group.take_gradients(where, verb, writes);
}
inline void finish_group(const BackwardStep& backward, Group& group, std::string_view verb, SourceLocation where) {
    group.finish_gradients(where, verb);
    if (backward) [[unlikely]] { backward->update_group(group, where); }
}
inline void add_to(const BackwardStep& backward, Group& group, std::string_view verb, SourceLocation where) {
    group.add_gradients(where, verb);
    if (group.has_all_microbatches()) { finish_group(backward, group, verb, where); }
}
inline void set_number(const BackwardStep& backward, Group& group, std::size_t count, SourceLocation where) {
    if (!group.trainable() || !group.step().accumulating()) { return; }
    check_update(backward, group, where);
    group.set_microbatches(count);
    if (group.has_all_microbatches()) { finish_group(backward, group, "set_microbatches", where); }
}

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit SHARDKIT_FACE {

SHARDKIT_CORE_INLINE const Model& Accumulation::groups(SourceLocation where) const {
    if (!scope_.live()) { detail::refuse_use(where, "reduce: this accumulation was already reduced"); }
    return scope_.groups();
}
SHARDKIT_CORE_INLINE void Accumulation::set_of(detail::Group& group, std::size_t count, SourceLocation where) {
    group.require_accumulation(scope_.number(), "set_microbatches", where);
    detail::check_number(group, count, where);
    detail::set_number(backward_, group, count, where);
}
SHARDKIT_CORE_INLINE void Accumulation::take(detail::Group& group, SourceLocation where) {
    group.require_accumulation(scope_.number(), "gradients", where);
    detail::take(backward_, group, "gradients", detail::Writes::backward, where);
}
SHARDKIT_CORE_INLINE void Accumulation::add_taken(detail::Group& group, SourceLocation where) {
    try {
        group.require_accumulation(scope_.number(), "add", where);
        detail::check_update(backward_, group, where);
    } catch (...) {
        group.drop_gradients();
        throw;
    }
    detail::add_to(backward_, group, "add", where);
}
SHARDKIT_CORE_INLINE void Accumulation::add_zeros(detail::Group& group, SourceLocation where) {
    group.require_accumulation(scope_.number(), "add_zero", where);
    detail::check_update(backward_, group, where);
    detail::take(backward_, group, "add_zero", detail::Writes::nobody, where);
    detail::add_to(backward_, group, "add_zero", where);
}
SHARDKIT_CORE_INLINE void Accumulation::skip_step(detail::Group& group, SourceLocation where) {
    group.require_accumulation(scope_.number(), "skip", where);
    group.skip_step(where);
}

SHARDKIT_CORE_INLINE void Accumulation::set_all(std::size_t count, SourceLocation where) {
    const Model& model = groups(where);
    for (detail::Group& group : spi::groups(model, where)) { detail::check_number(group, count, where); }
    for (detail::Group& group : spi::groups(model, where)) { detail::set_number(backward_, group, count, where); }
}

SHARDKIT_CORE_INLINE detail::StepScope Accumulation::finish(SourceLocation where) && {
    const Model& model = groups(where);
    const auto unfinished = [&](const auto& f) {
        for (detail::Group& group : spi::groups(model, where)) {
            if (group.trainable() && group.step().accumulating()) { f(group); }
        }
    };
    unfinished([&](detail::Group& group) {
        const std::size_t added = group.step().added();
        if (added != 0 && added < group.microbatches()) {
            throw_usage_error(where, "'", group.path(), "': reduce() after ", added, " of ", group.microbatches(),
                              " microbatches; call add, or add_zero for one that did not use it");
        }
    });
    unfinished([&](detail::Group& group) { detail::check_update(backward_, group, where); });
    unfinished([&](detail::Group& group) { detail::finish_group(backward_, group, "reduce", where); });
    if (backward_) {
        backward_->flush();
        backward_.release()->end_backward(detail::BackwardUpdates::End::complete);
    }
    return std::move(scope_);
}

}  // namespace SHARDKIT_FACE
