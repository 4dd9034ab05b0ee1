// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/check.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu {

/// How many GPUs this process sees.
/// @throws Error, also when there is no GPU or no driver
inline int device_count(SourceLocation where = SourceLocation::current()) {
    int count = 0;
    check(cudaGetDeviceCount(&count), "cudaGetDeviceCount", where);
    return count;
}

}  // namespace shardkit::gpu
