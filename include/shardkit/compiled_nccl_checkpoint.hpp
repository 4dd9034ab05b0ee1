// SPDX-License-Identifier: Apache-2.0
#pragma once

// The core's checkpoints over NCCL: see compiled.hpp.

#ifdef SHARDKIT_COMPILED
#undef SHARDKIT_COMPILED
#endif

#include <shardkit/detail/hide_macros.inc>

#include <shardkit/backend/nccl/compiled_engine.hpp>
#include <shardkit/compiled/define_checkpoint.hpp>

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {
namespace {
const bool saves_over_nccl = add_nccl_part<CheckpointsOf>(&EngineCore::checkpoints);
}  // namespace
}  // namespace SHARDKIT_CHECKED_BUILD

#include <shardkit/detail/show_macros.inc>
