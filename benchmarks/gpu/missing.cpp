// SPDX-License-Identifier: Apache-2.0
// In place of the sources for GPUs where there is no CUDA: who asks for a GPU is refused before anything runs.
#include <stdexcept>

#include "../../examples/common/input_error.hpp"
#include "../collectives/rows.hpp"
#include "../common/machine.hpp"
#include "../kernels/report.hpp"

namespace benchmarks {

Gpu read_gpu(const std::string& flag, std::size_t, std::size_t) {
    throw program::InputError(flag +
                              ": this program was built without CUDA; expected benchmarks/run to start it, on a "
                              "machine with a GPU and the CUDA toolkit");
}

void run_on_nccl(const Options&, const RowSink&) { throw std::logic_error("run_on_nccl: built without CUDA"); }

void kernels::run_on_gpu(const Options&, const RowSink&) { throw std::logic_error("run_on_gpu: built without CUDA"); }

}  // namespace benchmarks
