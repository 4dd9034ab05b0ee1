// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <span>

#include <shardkit/backend/cub/adamw_pass.hpp>
#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/optim/adamw_spans.hpp>
#include <shardkit/optim/adamw_update.hpp>
#include <shardkit/optim/update_run.hpp>

// `launch(count, work, kernel)` runs work(i) for each i in [0, count), in any order: DeviceLaunch, or a test's loop.

namespace shardkit::gpu {

/// One AdamW step over the elements in `runs`, element i of a run with updates[run.update]; nothing when *skip is not
/// 0. One launch. Elements outside of every run are left alone.
/// @pre  runs are sorted, disjoint and inside the spans
template <FloatingElement Master, FloatingElement Gather, FloatingElement Gradient, class Launch>
void adamw(const Launch& launch, std::span<const UpdateRun> runs, const AdamWUpdate<Arithmetic<Master>>* updates,
           const std::uint32_t* skip, const AdamWSpans<Master, Gather, Gradient>& spans) {
    using Pass = AdamWPass<Master, Gather, Gradient>;
    require_size("adamw", "gradient", spans.gradient.size(), spans.master.size());
    require_size("adamw", "exp_avg", spans.exp_avg.size(), spans.master.size());
    require_size("adamw", "exp_avg_sq", spans.exp_avg_sq.size(), spans.master.size());
    const bool writes_gathered = !std::same_as<Master, Gather> || !spans.gathered.empty();
    if (writes_gathered) { require_size("adamw", "gathered", spans.gathered.size(), spans.master.size()); }
    if (runs.empty()) { return; }
    Gather* const gathered = writes_gathered ? spans.gathered.data() : nullptr;
    const Pass pass{spans.master.data(),
                    gathered,
                    spans.gradient.data(),
                    spans.exp_avg.data(),
                    spans.exp_avg_sq.data(),
                    runs.data(),
                    runs.size(),
                    updates,
                    skip,
                    tile<Pass::lanes>(spans.master.size(), spans.master.data(), gathered, spans.gradient.data(),
                                      spans.exp_avg.data(), spans.exp_avg_sq.data())};
    launch(pass.tiling.vectors(), pass, "adamw");
}

}  // namespace shardkit::gpu
