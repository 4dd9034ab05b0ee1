// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <span>

#include <shardkit/backend/cub/sgd_pass.hpp>
#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/optim/sgd_spans.hpp>
#include <shardkit/optim/sgd_update.hpp>
#include <shardkit/optim/update_run.hpp>

// `launch(count, work, kernel)` runs work(i) for each i in [0, count), in any order: DeviceLaunch, or a test's loop.

namespace shardkit::gpu {

/// One SGD step over the elements in `runs`, as adamw.
/// @pre  the updates' rule is Momentum::none exactly where spans.momentum_buffer is empty
template <FloatingElement Master, FloatingElement Gather, FloatingElement Gradient, class Launch>
void sgd(const Launch& launch, std::span<const UpdateRun> runs, const SgdUpdate<Arithmetic<Master>>* updates,
         const std::uint32_t* skip, const SgdSpans<Master, Gather, Gradient>& spans) {
    using Pass = SgdPass<Master, Gather, Gradient>;
    using A = Arithmetic<Master>;
    require_size("sgd", "gradient", spans.gradient.size(), spans.master.size());
    if (!spans.momentum_buffer.empty()) {
        require_size("sgd", "momentum_buffer", spans.momentum_buffer.size(), spans.master.size());
    }
    const bool writes_gathered = !std::same_as<Master, Gather> || !spans.gathered.empty();
    if (writes_gathered) { require_size("sgd", "gathered", spans.gathered.size(), spans.master.size()); }
    if (runs.empty()) { return; }
    Gather* const gathered = writes_gathered ? spans.gathered.data() : nullptr;
    A* const momentum_buffer = spans.momentum_buffer.empty() ? nullptr : spans.momentum_buffer.data();
    const Pass pass{spans.master.data(),
                    gathered,
                    spans.gradient.data(),
                    momentum_buffer,
                    runs.data(),
                    runs.size(),
                    updates,
                    skip,
                    tile<Pass::lanes>(spans.master.size(), spans.master.data(), gathered, spans.gradient.data(),
                                      momentum_buffer)};
    launch(pass.tiling.vectors(), pass, "sgd");
}

}  // namespace shardkit::gpu
