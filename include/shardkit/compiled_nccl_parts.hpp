// SPDX-License-Identifier: Apache-2.0
#pragma once

// The core's plans, checks, averages and Muon over NCCL: see compiled.hpp.

#ifdef SHARDKIT_COMPILED
#undef SHARDKIT_COMPILED
#endif

#include <shardkit/detail/hide_macros.inc>

#include <shardkit/backend/nccl/compiled_engine.hpp>
#include <shardkit/compiled/define_parts.hpp>

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {
namespace {
const bool has_parts_over_nccl = add_nccl_part<PartsOf>(&EngineCore::parts);
}  // namespace
}  // namespace SHARDKIT_CHECKED_BUILD

#include <shardkit/detail/show_macros.inc>
