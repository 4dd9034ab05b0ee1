// SPDX-License-Identifier: Apache-2.0
#pragma once

// Resharding, which reshard.hpp declares: see compiled.hpp.

#ifdef SHARDKIT_COMPILED
#undef SHARDKIT_COMPILED
#endif

#include <shardkit/detail/hide_macros.inc>

#include <shardkit/compiled/define_reshard.hpp>

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

const Reshards& reshards_of(const Object& object, SourceLocation where) {
    return part_of<ReshardsOf>(object, &EngineCore::reshards, "resharding", "compiled_nccl_reshard.hpp", where);
}

}  // namespace SHARDKIT_CHECKED_BUILD

#include <shardkit/detail/show_macros.inc>
