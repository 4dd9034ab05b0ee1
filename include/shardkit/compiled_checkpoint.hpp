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
    static const CheckpointsOf<host::Engine> of_host;
    const EngineCore& core = object.engine();
    if (&core == &engine_core<host::Engine>()) { return of_host; }
    if (core.checkpoints == nullptr) { refuse_part(core, "checkpoints", "compiled_nccl_checkpoint.hpp", where); }
    return *core.checkpoints;
}

}  // namespace SHARDKIT_CHECKED_BUILD

#include <shardkit/detail/show_macros.inc>
