// SPDX-License-Identifier: Apache-2.0
#pragma once

// The core's checkpoints: see compiled.hpp.

#ifdef SHARDKIT_COMPILED
#undef SHARDKIT_COMPILED
#endif

#include <shardkit/detail/hide_macros.inc>

#include <shardkit/compiled/define_checkpoint.hpp>

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

const Checkpoints& checkpoints_of(const Object& object, SourceLocation where) {
    return part_of<CheckpointsOf>(object, &EngineCore::checkpoints, "checkpoints", "compiled_nccl_checkpoint.hpp",
                                  where);
}

}  // namespace SHARDKIT_CHECKED_BUILD

#include <shardkit/detail/show_macros.inc>
