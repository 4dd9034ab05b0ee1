// SPDX-License-Identifier: Apache-2.0
// In place of fit_mpi.cpp and run_on_mpi_*.cpp where the build found no MPI; the flags are refused before.
#include <stdexcept>

#include <shardkit/core/bf16.hpp>

#include "job.hpp"

namespace benchmarks::policies {

template <class T>
void run_on_mpi(const Job& /*job*/, const RowSink& /*sink*/) {
    throw std::logic_error("run_on_mpi: built without MPI");
}
template void run_on_mpi<double>(const Job&, const RowSink&);
template void run_on_mpi<float>(const Job&, const RowSink&);
template void run_on_mpi<shardkit::bf16>(const Job&, const RowSink&);

FittedLinks fit_mpi(const Options& /*options*/, const program::MeshExtents& /*mesh*/) {
    throw std::logic_error("fit_mpi: built without MPI");
}

}  // namespace benchmarks::policies
