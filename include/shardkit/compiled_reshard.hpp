// SPDX-License-Identifier: Apache-2.0
#pragma once

// Resharding, which reshard.hpp declares: see compiled.hpp.

#ifdef SHARDKIT_COMPILED
#undef SHARDKIT_COMPILED
#endif

#include <shardkit/detail/hide_macros.inc>

#include <shardkit/compiled/define_reshard.hpp>

#include <shardkit/detail/show_macros.inc>
