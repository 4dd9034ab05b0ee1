// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <shardkit/backend/nccl/launcher.hpp>

namespace cuda_trainer {

inline void check(cudaError_t code, const char* call) {
    if (code != cudaSuccess) { throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(code)); }
}
inline void check(ncclResult_t code, const char* call) {
    if (code != ncclSuccess) { throw std::runtime_error(std::string(call) + ": " + ncclGetErrorString(code)); }
}

/// This process among those of its job: its GPU, selected, with a stream that everything runs on, and the
/// communicator that connects the processes.
struct Job {
    std::size_t rank;
    std::size_t ranks;
    cudaStream_t stream = nullptr;
    ncclComm_t comm = nullptr;

    Job(int device, ncclUniqueId id, std::size_t number, std::size_t count) : rank(number), ranks(count) {
        check(cudaSetDevice(device), "cudaSetDevice");
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        check(ncclCommInitRank(&comm, static_cast<int>(ranks), id, static_cast<int>(rank)), "ncclCommInitRank");
    }
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;
    ~Job() {
        if (comm != nullptr) { static_cast<void>(ncclCommDestroy(comm)); }
        static_cast<void>(cudaStreamDestroy(stream));
    }
    /// Ends what is under way, without the peers.
    void abort() {
        if (comm != nullptr) { static_cast<void>(ncclCommAbort(std::exchange(comm, nullptr))); }
    }
};

/// Zeroed device memory.
template <class T>
class DeviceArray {
  public:
    DeviceArray(std::size_t size, cudaStream_t stream) : size_(size) {
        void* memory = nullptr;
        check(cudaMalloc(&memory, bytes()), "cudaMalloc");
        data_ = static_cast<T*>(memory);
        check(cudaMemsetAsync(data_, 0, bytes(), stream), "cudaMemsetAsync");
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

/// From the host's memory or into it; returns when it is done.
template <class T>
void copy(cudaStream_t stream, T* to, const T* from, std::size_t count) {
    check(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

/// work(i) for each i below `count`, in the stream's order: a thread each. Defined in launch.cuh, so that files which
/// only launch need no nvcc; a test may define it as a loop.
template <class Work>
void launch(cudaStream_t stream, std::size_t count, const Work& work);

}  // namespace cuda_trainer
