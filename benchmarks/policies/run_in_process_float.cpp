// SPDX-License-Identifier: Apache-2.0
#include "run_in_process.hpp"

template benchmarks::policies::Reference<float> benchmarks::policies::train_alone<float>(const Job&);
template void benchmarks::policies::run_in_process<float>(const Job&, const RowSink&);
