// SPDX-License-Identifier: Apache-2.0
#include "run_in_process.hpp"

template void benchmarks::policies::run_in_process<float>(const Job&, const RowSink&);
