// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

struct CUstream_st;
struct ncclComm;

/// What a code base has in its own source file of nvcc's: kernels on raw pointers, and communicators and streams that
/// it lends. Neither CUDA's headers nor NCCL's are needed to call it.
namespace code_base {

void add(float* to, std::size_t count, float value, CUstream_st* stream);
void copy_to_host(const float* from, std::size_t count, float* to, CUstream_st* stream);

/// One rank's communicator and stream, until its end.
class Job {
  public:
    Job(const void* id, std::size_t ranks, std::size_t rank);
    Job(Job&&) = delete;
    ~Job();

    ncclComm* comm = nullptr;
    CUstream_st* stream = nullptr;
};
void make_id(void* bytes);
int ranks_of(ncclComm* comm);

}  // namespace code_base
