// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include <cublas_v2.h>
#include <doctest/doctest.h>

#include "cuda_fixture.hpp"

namespace cublas_test {

namespace {

constexpr std::size_t workspace_bytes = 1024;

struct Blas {
    cublasHandle_t handle = nullptr;
    explicit Blas(cudaStream_t stream) {
        CHECK(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
        CHECK(cublasSetStream(handle, stream) == CUBLAS_STATUS_SUCCESS);
    }
    ~Blas() { CHECK(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS); }
    Blas(const Blas&) = delete;
    Blas& operator=(const Blas&) = delete;

    /// c += 2 * a * b, numbers
    cublasStatus_t add_product(const double* a, const double* b, double* c) const {
        const double two = 2;
        const double one = 1;
        return cublasDgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &two, a, 1, b, 1, &one, c, 1);
    }
};

}  // namespace

TEST_CASE("cuBLAS: a captured product is done at every launch, with what its matrices hold then") {
    const Fresh fresh;
    TestStream stream;
    DeviceArray<double> numbers(3);
    DeviceArray<char> workspace(workspace_bytes);
    const Blas blas(stream);
    CHECK(cublasSetWorkspace(blas.handle, workspace.data, workspace_bytes) == CUBLAS_STATUS_SUCCESS);
    numbers[0] = 3;
    numbers[1] = 5;
    numbers[2] = 1;
    cudaGraphExec_t graph = captured(stream, [&] {
        CHECK(blas.add_product(numbers.data, numbers.data + 1, numbers.data + 2) == CUBLAS_STATUS_SUCCESS);
    });
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(numbers[2] == 1);
    double expected = 1;
    for (const double factor : {3.0, 7.0, -1.0}) {
        numbers[0] = factor;
        workspace[0] = 0;
        CHECK(cudaGraphLaunch(graph, stream) == cudaSuccess);
        CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
        expected += 2 * factor * 5;
        CHECK(numbers[2] == expected);
        CHECK(workspace[0] != 0);
    }
    CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
}

TEST_CASE("cuBLAS: a capture needs a workspace, which setting the stream takes back") {
    const Fresh fresh;
    TestStream stream;
    DeviceArray<double> numbers(3);
    DeviceArray<char> workspace(workspace_bytes);
    const Blas blas(stream);
    const auto product = [&] { return blas.add_product(numbers.data, numbers.data + 1, numbers.data + 2); };
    const auto captured_product = [&] {
        cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
        CHECK(cudaGraphExecDestroy(captured(stream, [&] { status = product(); })) == cudaSuccess);
        return status;
    };
    CHECK(product() == CUBLAS_STATUS_SUCCESS);
    CHECK(captured_product() == CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK(cublasSetWorkspace(blas.handle, workspace.data, workspace_bytes) == CUBLAS_STATUS_SUCCESS);
    CHECK(captured_product() == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasSetStream(blas.handle, stream) == CUBLAS_STATUS_SUCCESS);
    CHECK(captured_product() == CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK(product() == CUBLAS_STATUS_SUCCESS);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
}

TEST_CASE("cuBLAS: a workspace is memory of the device, at a multiple of 256 bytes") {
    const Fresh fresh;
    TestStream stream;
    DeviceArray<char> workspace(workspace_bytes);
    const Blas blas(stream);
    alignas(256) static char on_host[workspace_bytes];
    CHECK(cublasSetWorkspace(nullptr, workspace.data, workspace_bytes) == CUBLAS_STATUS_NOT_INITIALIZED);
    CHECK(cublasSetWorkspace(blas.handle, workspace.data + 1, 512) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(cublasSetWorkspace(blas.handle, on_host, workspace_bytes) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(cublasSetWorkspace(blas.handle, nullptr, 1) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(cublasSetWorkspace(blas.handle, workspace.data + 256, 512) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasSetWorkspace(blas.handle, nullptr, 0) == CUBLAS_STATUS_SUCCESS);
}

}  // namespace cublas_test
