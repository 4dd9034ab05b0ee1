// SPDX-License-Identifier: Apache-2.0
// In place of run_on_mpi.cpp where the build found no MPI.
#include "../../examples/common/mpi_missing.hpp"
#include "rows.hpp"

namespace benchmarks {

void run_on_mpi(const Options&, const RowSink&) { program::throw_mpi_missing(); }

}  // namespace benchmarks
