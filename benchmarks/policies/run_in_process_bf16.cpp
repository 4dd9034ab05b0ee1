// SPDX-License-Identifier: Apache-2.0
#include <shardkit/core/bf16.hpp>

#include "run_in_process.hpp"

template benchmarks::policies::Reference<shardkit::bf16> benchmarks::policies::train_alone<shardkit::bf16>(
    const Job&);
template void benchmarks::policies::run_in_process<shardkit::bf16>(const Job&, const RowSink&);
