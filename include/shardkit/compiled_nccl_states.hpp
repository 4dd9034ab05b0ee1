// SPDX-License-Identifier: Apache-2.0
#pragma once

// The core's optimizers over NCCL with states in 16 and 8 bits: see compiled.hpp.

#ifdef SHARDKIT_COMPILED
#undef SHARDKIT_COMPILED
#endif

#include <shardkit/detail/hide_macros.inc>

#include <shardkit/backend/nccl/compiled_optimizers.hpp>

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {
namespace {
const bool stores_states_over_nccl = [] {
    nccl_core().make_optimizer[static_cast<int>(StateFormat::bf16)] = &make_nccl_optimizer<StateFormat::bf16>;
    nccl_core().make_optimizer[static_cast<int>(StateFormat::block8)] = &make_nccl_optimizer<StateFormat::block8>;
    return true;
}();
}  // namespace
}  // namespace SHARDKIT_CHECKED_BUILD

#include <shardkit/detail/show_macros.inc>
