// SPDX-License-Identifier: Apache-2.0
// In place of run_on_gpu.cpp in a program for the host alone, in which Gpu::read has refused the device before.
#include <stdexcept>

#include "report.hpp"

namespace benchmarks::kernels {

void run_on_gpu(const Options&, const RowSink&) { throw std::logic_error("run_on_gpu: built without CUDA"); }

}  // namespace benchmarks::kernels
