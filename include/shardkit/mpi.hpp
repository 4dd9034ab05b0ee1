// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// The engine whose ranks are processes over MPI. It needs <mpi.h>.

#include <shardkit/backend/mpi/environment.hpp>
#ifdef SHARDKIT_COMPILED
#include <shardkit/backend/mpi/options.hpp>
#include <shardkit/compiled/context.hpp>
#else
#include <shardkit/backend/mpi/communicator.hpp>
#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/backend/mpi/world.hpp>
#endif

#include <shardkit/detail/show_macros.inc>
