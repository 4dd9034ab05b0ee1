// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/cub/batch.hpp>
#include <shardkit/backend/cub/launch.cuh>
#include <shardkit/backend/cub/update.hpp>
#include <shardkit/optim/any_rule.hpp>
#include <shardkit/optim/sgd.hpp>

#include "instantiate_each_precision.hpp"

// SGD's kernels, without and with momentum, for combinations of element types.

using shardkit::detail::KnownRuleUpdate;
using shardkit::gpu::detail::DeviceLaunch;
using shardkit::gpu::detail::UpdatePass;

#define LAUNCH(...) template void DeviceLaunch::operator()(std::uint64_t, const __VA_ARGS__&, std::string_view) const;
#define SGD_PLAIN(Master, Gather, Gradient)                                                                      \
    LAUNCH(UpdatePass<KnownRuleUpdate<shardkit::rules::SgdUpdate<shardkit::Arithmetic<Master>>>, Master, Gather, \
                      Gradient, 0>)
#define SGD_MOMENTUM(Master, Gather, Gradient)                                                                   \
    LAUNCH(UpdatePass<KnownRuleUpdate<shardkit::rules::SgdUpdate<shardkit::Arithmetic<Master>>>, Master, Gather, \
                      Gradient, 1>)

EACH_PRECISION(SGD_PLAIN)
EACH_PRECISION(SGD_MOMENTUM)

// Batches of it.
#define BATCH(Master, Gather, Gradient)                                                                          \
    LAUNCH(shardkit::gpu::detail::BatchPass<                                                                     \
           UpdatePass<KnownRuleUpdate<shardkit::rules::SgdUpdate<shardkit::Arithmetic<Master>>>, Master, Gather, \
                      Gradient, 1>>)

EACH_DEFAULT_PRECISION(BATCH)
