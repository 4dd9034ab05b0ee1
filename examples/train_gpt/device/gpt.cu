// SPDX-License-Identifier: Apache-2.0
#ifndef __CUDA_ARCH__  // all device code is in other files: nvcc's pass for the device reads nothing here
#include <shardkit/backend/cub/kernels.hpp>

#include "program.hpp"

int main(int count, char** words) {
    using Engine = shardkit::nccl::Engine<shardkit::gpu::Kernels>;
    return train_gpt::device_program<Engine>(count, words, stdout, stderr);
}
#endif
