// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include <cuda_runtime_api.h>

// 77 is what Meson and automake take for "skipped".
int main(int argc, char** argv) {
    int devices = 0;
    const cudaError_t answer = cudaGetDeviceCount(&devices);
    if (answer != cudaSuccess || devices == 0) {
        std::printf("skipped: no GPU (%s)\n", answer != cudaSuccess ? cudaGetErrorString(answer) : "0 devices");
        return 77;
    }
    return doctest::Context(argc, argv).run();
}
