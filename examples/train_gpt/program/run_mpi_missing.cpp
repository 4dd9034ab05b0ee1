// SPDX-License-Identifier: Apache-2.0
// In place of run_mpi.cpp where the build found no MPI.
#include "../../common/mpi_missing.hpp"
#include "run_on_engine.hpp"

namespace train_gpt {

void run_mpi(const Job&, const RankFunction&) { program::throw_mpi_missing(); }

sk::engine::Traits mpi_traits() { return {}; }

}  // namespace train_gpt
