// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"
#include "row_sink.hpp"

namespace benchmarks {

/// Everything that the options ask for, on an engine each; `sink` is called where rank 0 is.
/// @throws InputError when the program was built without the engine; what a rank throws
void run_on_self(const Options& options, const RowSink& sink);
void run_on_threads(const Options& options, const RowSink& sink);
void run_on_mpi(const Options& options, const RowSink& sink);
void run_on_nccl(const Options& options, const RowSink& sink);

}  // namespace benchmarks
