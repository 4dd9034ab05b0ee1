// SPDX-License-Identifier: Apache-2.0
#ifndef __CUDA_ARCH__  // all device code is in kernels.cu: nvcc's pass for the device reads nothing here
#include "after.hpp"
#include "program.hpp"

int main(int count, char** words) {
    return cuda_trainer::run_trainer({words + 1, words + count}, stdout, stderr,
                                     [](auto&&... given) { return cuda_trainer::after::train(given...); });
}
#endif
