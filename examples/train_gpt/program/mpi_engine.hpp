// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/comm/cost.hpp>

#include "job.hpp"

namespace train_gpt {

/// train() with ranks as processes: explicit instantiations in train_mpi_fp64.cpp and its siblings.
/// @throws InputError when this program was built without MPI
template <class T>
Results train_mpi(const Job& job);

/// What the planner must know of the engine behind train_mpi.
shardkit::engine::Traits mpi_traits();

}  // namespace train_gpt
