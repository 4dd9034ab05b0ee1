// SPDX-License-Identifier: Apache-2.0
#pragma once

// The core's checkpoints: see compiled.hpp.

#ifdef SHARDKIT_COMPILED
#undef SHARDKIT_COMPILED
#endif

#include <shardkit/detail/hide_macros.inc>

#include <shardkit/compiled/define_checkpoint.hpp>

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

const Checkpoints& checkpoints_of(const Object& object) noexcept {
    static const CheckpointsOf<host::Engine> of_host;
    const Checkpoints* const of_another = object.engine().checkpoints;
    return of_another == nullptr ? of_host : *of_another;
}

}  // namespace SHARDKIT_CHECKED_BUILD

#include <shardkit/detail/show_macros.inc>
