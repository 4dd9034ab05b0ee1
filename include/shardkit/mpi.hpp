// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// The engine whose ranks are processes over MPI. It needs <mpi.h>.

#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/backend/mpi/options.hpp>
#include <shardkit/backend/mpi/run.hpp>

#include <shardkit/detail/show_macros.inc>
