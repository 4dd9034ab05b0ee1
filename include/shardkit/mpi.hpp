// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// The engine that runs ranks as processes over MPI; it needs <mpi.h>.

#include <shardkit/backend/mpi/engine.hpp>
#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/backend/mpi/staged.hpp>
#include <shardkit/backend/mpi/world.hpp>

#include <shardkit/detail/show_macros.inc>
