// SPDX-License-Identifier: Apache-2.0
#pragma once

// The core's parts behind plan.hpp, muon.hpp, moving_average.hpp and verify.hpp: see compiled.hpp.

#ifdef SHARDKIT_COMPILED
#undef SHARDKIT_COMPILED
#endif

#include <shardkit/detail/hide_macros.inc>

#include <shardkit/compiled/define_parts.hpp>

#include <shardkit/detail/show_macros.inc>
