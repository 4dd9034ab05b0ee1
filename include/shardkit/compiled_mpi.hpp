// SPDX-License-Identifier: Apache-2.0
#pragma once

// The core's engine of MPI, which needs <mpi.h>: see compiled.hpp.

#ifdef SHARDKIT_COMPILED
#undef SHARDKIT_COMPILED
#endif

#include <shardkit/detail/hide_macros.inc>

#include <shardkit/compiled/define_mpi.hpp>

#include <shardkit/detail/show_macros.inc>
