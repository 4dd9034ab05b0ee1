// SPDX-License-Identifier: Apache-2.0
// The code base's own, with functions of the host that the stand-in's streams call in place of kernels.
#include "on_nccl_kernels.hpp"

#include <cstring>
#include <stdexcept>

#include <cuda_runtime_api.h>
#include <nccl.h>

namespace code_base {

namespace {
void check(bool right, const char* what) {
    if (!right) { throw std::runtime_error(what); }
}
struct Add {
    float* to;
    std::size_t count;
    float value;
};
}  // namespace

void add(float* to, std::size_t count, float value, CUstream_st* stream) {
    const auto run = [](void* given) {
        const Add* const work = static_cast<const Add*>(given);
        for (std::size_t i = 0; i < work->count; ++i) { work->to[i] += work->value; }
        delete work;
    };
    check(cudaLaunchHostFunc(stream, run, new Add{to, count, value}) == cudaSuccess, "cudaLaunchHostFunc");
}
void copy_to_host(const float* from, std::size_t count, float* to, CUstream_st* stream) {
    check(cudaMemcpyAsync(to, from, count * sizeof(float), cudaMemcpyDeviceToHost, stream) == cudaSuccess,
          "cudaMemcpyAsync");
}

void make_id(void* bytes) {
    ncclUniqueId id;
    check(ncclGetUniqueId(&id) == ncclSuccess, "ncclGetUniqueId");
    std::memcpy(bytes, &id, sizeof(id));
}
Job::Job(const void* id, std::size_t ranks, std::size_t rank) {
    ncclUniqueId of_all;
    std::memcpy(&of_all, id, sizeof(of_all));
    check(cudaSetDevice(static_cast<int>(rank)) == cudaSuccess, "cudaSetDevice");
    check(ncclCommInitRank(&comm, static_cast<int>(ranks), of_all, static_cast<int>(rank)) == ncclSuccess,
          "ncclCommInitRank");
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "cudaStreamCreateWithFlags");
}
Job::~Job() {
    static_cast<void>(cudaStreamDestroy(stream));
    static_cast<void>(ncclCommDestroy(comm));
}
int ranks_of(ncclComm* comm) {
    int count = 0;
    check(ncclCommCount(comm, &count) == ncclSuccess, "ncclCommCount");
    return count;
}

}  // namespace code_base
