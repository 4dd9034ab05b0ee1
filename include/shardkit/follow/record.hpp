// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <type_traits>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::detail SHARDKIT_FACE {
/// Calls step(of), and returns what it has done.
Schedule record(const Model& model, void (*step)(void*), void* of, SourceLocation where);
}  // namespace shardkit::detail SHARDKIT_FACE

namespace shardkit::schedule SHARDKIT_FACE {

/// Runs `step`, which makes one training step of the model, and returns it as a schedule in steady state, whether
/// this was the first step or not. Recording does not change what the step computes, bit for bit.
///     const Schedule schedule = record(model, [&] { trainer.step(0); });
/// The recorded step begins with its Accumulation and ends with the optimizer's step; what `step` does before and
/// after is not part of it. Recording is local: all ranks may record, with the same result, or one rank alone.
/// @throws  UsageError when there was no step or more than one, or it has not ended; std::invalid_argument when the
///          step ended early and so breaks a rule; whatever `step` throws
template <class F>
Schedule record(const Model& model, F&& step, SourceLocation where = SourceLocation::current()) {
    auto call = [&] { std::forward<F>(step)(); };
    return detail::record(
        model, [](void* of) { (*static_cast<decltype(call)*>(of))(); }, &call, where);
}

}  // namespace shardkit::schedule SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/follow/step_recorder.hpp>
#endif
