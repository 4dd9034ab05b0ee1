// SPDX-License-Identifier: Apache-2.0
// In place of gpu.cpp in programs for the host alone.
#include "../../examples/common/input_error.hpp"
#include "machine.hpp"

namespace benchmarks {

Gpu Gpu::read(const std::string& flag, std::size_t, std::size_t) {
    throw program::InputError(flag +
                              ": this program was built without CUDA; expected benchmarks/run to start it, on a "
                              "machine with a GPU and the CUDA toolkit");
}

}  // namespace benchmarks
