// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

namespace cuda_trainer {

inline void check(cudaError_t code, const char* call) {
    if (code != cudaSuccess) { throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(code)); }
}
inline void check(cublasStatus_t code, const char* call) {
    if (code != CUBLAS_STATUS_SUCCESS) {
        throw std::runtime_error(std::string(call) + ": " + cublasGetStatusString(code));
    }
}
inline void check(ncclResult_t code, const char* call) {
    if (code != ncclSuccess) { throw std::runtime_error(std::string(call) + ": " + ncclGetErrorString(code)); }
}

/// This process's GPU: selected, with a stream that everything runs on, and cuBLAS on that stream.
struct Gpu {
    /// Memory of the trainer's own for cuBLAS, which would else take more for every graph that its products are
    /// captured into. NVIDIA recommends 4 MiB, and 32 MiB on Hopper; these products are small.
    static constexpr std::size_t workspace_bytes = std::size_t{4} << 20U;

    cudaStream_t stream = nullptr;
    cublasHandle_t blas = nullptr;
    void* workspace = nullptr;

    explicit Gpu(int device) {
        check(cudaSetDevice(device), "cudaSetDevice");
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        check(cublasCreate(&blas), "cublasCreate");
        check(cublasSetStream(blas, stream), "cublasSetStream");
        check(cudaMalloc(&workspace, workspace_bytes), "cudaMalloc");
        check(cublasSetWorkspace(blas, workspace, workspace_bytes), "cublasSetWorkspace");
    }
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;
    ~Gpu() {
        static_cast<void>(cublasDestroy(blas));
        static_cast<void>(cudaFree(workspace));
        static_cast<void>(cudaStreamDestroy(stream));
    }
};

/// Zeroed device memory.
template <class T>
class DeviceArray {
  public:
    DeviceArray(std::size_t size, cudaStream_t stream) : size_(size) {
        void* memory = nullptr;
        check(cudaMalloc(&memory, size * sizeof(T)), "cudaMalloc");
        data_ = static_cast<T*>(memory);
        check(cudaMemsetAsync(data_, 0, size * sizeof(T), stream), "cudaMemsetAsync");
    }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;
    ~DeviceArray() { static_cast<void>(cudaFree(data_)); }

    T* data() const { return data_; }
    std::size_t size() const { return size_; }
    std::size_t bytes() const { return size_ * sizeof(T); }

  private:
    T* data_ = nullptr;
    std::size_t size_;
};

/// From the host's memory; returns when `from` may be reused.
template <class T>
void upload(cudaStream_t stream, T* to, const T* from, std::size_t count) {
    check(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

/// Into the host's memory; returns when `to` holds the values.
template <class T>
void download(cudaStream_t stream, T* to, const T* from, std::size_t count) {
    check(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

}  // namespace cuda_trainer
