// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/host/engine.hpp>
#include <shardkit/backend/mpi/communicator.hpp>

namespace shardkit::mpi {

/// The engine whose ranks are processes on one or many hosts, over any MPI implementation.
using Engine = host::Engine;

}  // namespace shardkit::mpi
