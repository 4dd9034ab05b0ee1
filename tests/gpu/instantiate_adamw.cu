// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/cub/batch.hpp>
#include <shardkit/backend/cub/launch.cuh>
#include <shardkit/backend/cub/update.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/any_rule.hpp>

#include "instantiate_each_precision.hpp"

// AdamW's kernel for combinations of element types.

using shardkit::detail::KnownRuleUpdate;
using shardkit::gpu::detail::DeviceLaunch;
using shardkit::gpu::detail::UpdatePass;

#define LAUNCH(...) template void DeviceLaunch::operator()(std::uint64_t, const __VA_ARGS__&, std::string_view) const;
#define ADAMW(Master, Gather, Gradient)                                                                            \
    LAUNCH(UpdatePass<KnownRuleUpdate<shardkit::rules::AdamWUpdate<shardkit::Arithmetic<Master>>>, Master, Gather, \
                      Gradient, 2>)

EACH_PRECISION(ADAMW)

// Batches of it.
#define BATCH(Master, Gather, Gradient)                                                                            \
    LAUNCH(shardkit::gpu::detail::BatchPass<                                                                       \
           UpdatePass<KnownRuleUpdate<shardkit::rules::AdamWUpdate<shardkit::Arithmetic<Master>>>, Master, Gather, \
                      Gradient, 2>>)

EACH_DEFAULT_PRECISION(BATCH)
