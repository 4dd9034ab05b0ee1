// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/check.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu {

/// The device that this thread's calls go to.
/// @throws Error
inline int current_device(SourceLocation where = SourceLocation::current()) {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice", where);
    return device;
}

}  // namespace shardkit::gpu
