// SPDX-License-Identifier: Apache-2.0
#include <shardkit/core/bf16.hpp>

#include "run_on_mpi.hpp"

template void benchmarks::policies::run_on_mpi<shardkit::bf16>(const Job&, const RowSink&);
