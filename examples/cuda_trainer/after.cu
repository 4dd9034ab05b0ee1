// SPDX-License-Identifier: Apache-2.0
#ifndef __CUDA_ARCH__  // all device code is in other files: nvcc's pass for the device reads nothing here
#include "after.hpp"
#include "program.hpp"

int main(int count, char** words) {
    return cuda_trainer::run_trainer(count, words, stdout, stderr,
                                     [](auto&&... given) { return cuda_trainer::after::train(given...); });
}
#endif
