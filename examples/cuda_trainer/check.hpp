// SPDX-License-Identifier: Apache-2.0
#pragma once

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

}  // namespace cuda_trainer
