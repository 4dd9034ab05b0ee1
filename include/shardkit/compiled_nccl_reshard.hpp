// SPDX-License-Identifier: Apache-2.0
#pragma once

// The core's resharding over NCCL: see compiled.hpp.

#ifdef SHARDKIT_COMPILED
#undef SHARDKIT_COMPILED
#endif

#include <shardkit/detail/hide_macros.inc>

#include <shardkit/backend/nccl/compiled_engine.hpp>
#include <shardkit/compiled/define_reshard.hpp>

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {
namespace {
const bool reshards_over_nccl = add_nccl_part<ReshardsOf>(&EngineCore::reshards);
}  // namespace
}  // namespace SHARDKIT_CHECKED_BUILD

#include <shardkit/detail/show_macros.inc>
