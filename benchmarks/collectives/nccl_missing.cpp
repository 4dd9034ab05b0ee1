// SPDX-License-Identifier: Apache-2.0
// In place of run_on_nccl.cpp in a program for the host alone, in which Gpu::read has refused the engine before.
#include <stdexcept>

#include "rows.hpp"

namespace benchmarks {

void run_on_nccl(const Options&, const RowSink&) { throw std::logic_error("run_on_nccl: built without CUDA"); }

}  // namespace benchmarks
