// SPDX-License-Identifier: Apache-2.0
#include "run_on_mpi.hpp"

template void benchmarks::policies::run_on_mpi<double>(const Job&, const RowSink&);
