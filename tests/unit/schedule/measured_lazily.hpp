// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>

#include "unit/schedule/scheduled_trainer.hpp"
#include "unit/streams/lazy_rank.hpp"

namespace measured_lazily {

namespace sk = shardkit;

/// Measures a step whose collectives run when the compute stream waits for them, and not before: whether all of them
/// begin while the rank is said to wait, and none while it is said to compute.
inline bool communication_is_waited_for(bool norm) {
    lazy::Rank rank(lazy::Pace::eager, lazy::Pace::lazy, lazy::Pace::lazy);
    scheduled::Trainer<sk::Precision<float>> trainer(
        rank, {.policy = sk::DynamicPolicy(sk::FullShard{}), .microbatches = 2, .norm = norm});
    const auto groups = sk::describe_groups(trainer.model());
    const sk::Schedule recorded = sk::schedule::record(trainer.model(), [&] { trainer.step(0); });
    auto following = sk::schedule::follow(trainer.model(), sk::schedule::prefetch(recorded, groups, 1));
    following.measure();
    trainer.step(1);
    const sk::schedule::MeasuredStep step = following.measured();
    // When one has ended is seen later: that is behind the event which is waited for.
    return std::all_of(step.spans.begin(), step.spans.end(), [&](const sk::schedule::StepSpan& each) {
        return each.kind != sk::schedule::SpanKind::communicates ||
               std::any_of(step.spans.begin(), step.spans.end(), [&](const sk::schedule::StepSpan& wait) {
                   return wait.kind == sk::schedule::SpanKind::waits && wait.time.begin <= each.time.begin &&
                          each.time.begin <= wait.time.end;
               });
    });
}

}  // namespace measured_lazily
