// SPDX-License-Identifier: Apache-2.0
#include "run_in_process.hpp"

template void benchmarks::policies::run_in_process<double>(const Job&, const RowSink&);
