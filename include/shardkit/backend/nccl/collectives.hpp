// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include <shardkit/backend/nccl/api.hpp>

namespace shardkit::nccl::detail {

// NCCL's collectives, with what one call says for itself.
// Source:  ncclCollConfig_t in nccl.h of 2.31.2 and 2.32.3; ncclMakeSymmetricTaskList in NCCL's symmetric_sched.cc

/// What NCCL is told of one call alone. Where something is said, header and library are those of NCCL 2.31.2.
struct SaidOfCall {
    std::uint64_t number = 0;  ///< for NCCL's profiler plugins; 0 is none there too
    bool one_cta = false;
    bool copy_engines = false;  ///< of a gather
    /// Whether a sum is by NCCL's kernels for symmetric windows, which add 16-bit elements in fp32, or by none: where
    /// NCCL has no such kernel for a call, the call fails, and its communicator with it.
    bool symmetric = false;
    cudaEvent_t started = nullptr;  ///< recorded when the call's kernel has started

    bool nothing() const noexcept {
        return number == 0 && !one_cta && !copy_engines && !symmetric && started == nullptr;
    }
#if NCCL_VERSION_CODE >= 23102
    ncclCollConfig_t native() const {
        ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
        config.userProfilerTag = number;
        if (one_cta) { config.minCTAs = config.maxCTAs = 1; }
        if (copy_engines) { config.CTAPolicy = NCCL_CTA_POLICY_ZERO; }
        if (symmetric) { config.algSelection = "SYMK"; }
        config.forceAlgSelection = 1;
#if NCCL_VERSION_CODE >= 23200
        config.launchCompletionEvent = started;
#endif
        return config;
    }
#endif
};

/// Makes a call of NCCL: `plain()`, or `configured(config)` where something is said of it.
template <class Plain, class Configured>
ncclResult_t call_collective(const SaidOfCall& said, const Plain& plain,
                             [[maybe_unused]] const Configured& configured) {
    if (said.nothing()) { return plain(); }
#if NCCL_VERSION_CODE >= 23102
    const ncclCollConfig_t config = said.native();
    return configured(&config);
#else
    return ncclInvalidUsage;
#endif
}

inline ncclResult_t all_gather(const SaidOfCall& said, const void* from, void* to, std::size_t count,
                               ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
    return call_collective(
        said, [&] { return ncclAllGather(from, to, count, type, comm, stream); },
        [&](auto* config) { return ncclAllGatherConfig(from, to, count, type, comm, stream, config); });
}
inline ncclResult_t reduce_scatter(const SaidOfCall& said, const void* from, void* to, std::size_t count,
                                   ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return call_collective(
        said, [&] { return ncclReduceScatter(from, to, count, type, op, comm, stream); },
        [&](auto* config) { return ncclReduceScatterConfig(from, to, count, type, op, comm, stream, config); });
}
inline ncclResult_t all_reduce(const SaidOfCall& said, const void* from, void* to, std::size_t count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return call_collective(
        said, [&] { return ncclAllReduce(from, to, count, type, op, comm, stream); },
        [&](auto* config) { return ncclAllReduceConfig(from, to, count, type, op, comm, stream, config); });
}
inline ncclResult_t broadcast(const SaidOfCall& said, const void* from, void* to, std::size_t count,
                              ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
    return call_collective(
        said, [&] { return ncclBroadcast(from, to, count, type, root, comm, stream); },
        [&](auto* config) { return ncclBroadcastConfig(from, to, count, type, root, comm, stream, config); });
}

}  // namespace shardkit::nccl::detail
