// SPDX-License-Identifier: Apache-2.0
#pragma once

// The core's engine of MPI, which needs <mpi.h>: see compiled.hpp.

#include <shardkit/detail/core_begins.inc>

#include <shardkit/backend/mpi/run.hpp>

#include <shardkit/detail/show_macros.inc>
