// SPDX-License-Identifier: Apache-2.0
#ifndef __CUDA_ARCH__  // all device code is in other files: nvcc's pass for the device reads nothing here
#include "program.hpp"

int main(int count, char** words) { return train_gpt::device_program(count, words, stdout, stderr); }
#endif
