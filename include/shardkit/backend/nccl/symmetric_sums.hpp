// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <cuda_runtime_api.h>

#include <shardkit/backend/nccl/api.hpp>

namespace shardkit::nccl::detail {

// Sums by NCCL's kernels for symmetric windows, which add 16-bit elements in fp32, or by none: where NCCL has no such
// kernel for a call, the call fails, and its communicator with it. Need NCCL 2.31.2.
// Source:  ncclCollConfig_t in nccl.h; ncclMakeSymmetricTaskList in NCCL's symmetric_sched.cc; ncclSymkAccumType

#if NCCL_VERSION_CODE >= 23102
inline ncclCollConfig_t symmetric_kernels_alone() {
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    config.algSelection = "SYMK";
    config.forceAlgSelection = 1;
    return config;
}
#endif

inline ncclResult_t scatter_symmetric_sum([[maybe_unused]] const void* from, [[maybe_unused]] void* to,
                                          [[maybe_unused]] std::size_t count, [[maybe_unused]] ncclDataType_t type,
                                          [[maybe_unused]] ncclComm_t comm, [[maybe_unused]] cudaStream_t stream) {
#if NCCL_VERSION_CODE >= 23102
    const ncclCollConfig_t config = symmetric_kernels_alone();
    return ncclReduceScatterConfig(from, to, count, type, ncclSum, comm, stream, &config);
#else
    return ncclInvalidUsage;
#endif
}
inline ncclResult_t symmetric_sum([[maybe_unused]] const void* from, [[maybe_unused]] void* to,
                                  [[maybe_unused]] std::size_t count, [[maybe_unused]] ncclDataType_t type,
                                  [[maybe_unused]] ncclComm_t comm, [[maybe_unused]] cudaStream_t stream) {
#if NCCL_VERSION_CODE >= 23102
    const ncclCollConfig_t config = symmetric_kernels_alone();
    return ncclAllReduceConfig(from, to, count, type, ncclSum, comm, stream, &config);
#else
    return ncclInvalidUsage;
#endif
}

}  // namespace shardkit::nccl::detail
