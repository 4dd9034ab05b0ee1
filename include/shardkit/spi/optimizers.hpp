// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a part knows of an optimizer and of reduced gradients: the frame that an optimizer of its own derives from,
// spi::OptimizerContents, and norms.

#include <shardkit/optim/group_progress.hpp>
#include <shardkit/optim/optimizer_frame.hpp>
#include <shardkit/optim/state_kind.hpp>
#ifndef SHARDKIT_COMPILED
#include <shardkit/optim/norm.hpp>
#include <shardkit/optim/optimizer_contents.hpp>

namespace shardkit::spi {
/// What an optimizer holds of one group that it updates: an item of OptimizerContents::held.
using OptimizerMemory = detail::OptimizerMemory;
}  // namespace shardkit::spi
#endif

namespace shardkit::spi {
/// How far an optimizer's updates of a group are: an item of OptimizerContents::progress.
using GroupProgress = detail::GroupProgress;
}  // namespace shardkit::spi
