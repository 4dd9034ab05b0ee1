// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include <cuda_runtime_api.h>

#include "../../examples/common/input_error.hpp"

namespace benchmarks {

/// Whether this machine has GPU `number`, and one for each of `wanted` processes.
/// @throws InputError that begins with `flag`, which asks for them, and says how many there are
inline void require_gpus(const std::string& flag, std::size_t number, std::size_t wanted) {
    int gpus = 0;
    const cudaError_t answer = cudaGetDeviceCount(&gpus);
    if (answer != cudaSuccess || gpus == 0) {
        throw program::InputError(flag + ": this machine has no GPU that CUDA can use (" +
                                  (answer == cudaSuccess ? "none is visible" : cudaGetErrorString(answer)) +
                                  "): expected one for each rank");
    }
    const auto there = static_cast<std::size_t>(gpus);
    if (wanted > there || number >= there) {
        throw program::InputError(flag + ": this machine has " + std::to_string(there) +
                                  (there == 1 ? " GPU" : " GPUs") + ", but is to run " +
                                  std::to_string(wanted > number ? wanted : number + 1) +
                                  " ranks: expected at most one rank for each GPU");
    }
}

}  // namespace benchmarks
