// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/communicator.hpp>

namespace benchmarks::reshard {

/// Calls `time` on this process's rank of an MPI job of so many.
void run_on_mpi(std::size_t ranks, const std::function<void(shardkit::Rank&)>& time);

}  // namespace benchmarks::reshard
