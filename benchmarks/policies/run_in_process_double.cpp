// SPDX-License-Identifier: Apache-2.0
#include "run_in_process.hpp"

template benchmarks::policies::Reference<double> benchmarks::policies::train_alone<double>(const Job&);
template void benchmarks::policies::run_in_process<double>(const Job&, const RowSink&);
