// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

#include <cuda_runtime_api.h>

#include "skip.hpp"

int main(int argc, char** argv) {
    int devices = 0;
    const cudaError_t answer = cudaGetDeviceCount(&devices);
    if (answer != cudaSuccess || devices == 0) {
        // Where nvidia-smi has named a GPU, as in tests/gpu/run, to find none is a failure.
        const bool expected = std::getenv("SHARDKIT_TEST_EXPECTS_GPU") != nullptr;
        std::printf("%s: no GPU (%s)\n", expected ? "failed" : "skipped",
                    answer != cudaSuccess ? cudaGetErrorString(answer) : "0 devices");
        return expected ? EXIT_FAILURE : skipped_status;
    }
    const int status = doctest::Context(argc, argv).run();
    return status == 0 && any_skipped() ? skipped_status : status;
}
