// SPDX-License-Identifier: Apache-2.0
#include "before.hpp"
#include "launch.cuh"
#include "program.hpp"

int main(int count, char** words) {
    return cuda_trainer::run_trainer(count, words, stdout, stderr, cuda_trainer::before::train);
}
