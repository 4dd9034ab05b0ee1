// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/check.hpp>
#include <shardkit/backend/cuda/current_device.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu {

/// Selects a device for this thread until the end of the scope, then the one that was selected before.
class DeviceGuard {
  public:
    /// @throws Error when there is no such device; the selection is then unchanged
    explicit DeviceGuard(int device, SourceLocation where = SourceLocation::current())
        : before_(current_device(where)), changed_(before_ != device) {
        if (changed_) { check(cudaSetDevice(device), "cudaSetDevice", where); }
    }
    DeviceGuard(const DeviceGuard&) = delete;
    DeviceGuard& operator=(const DeviceGuard&) = delete;
    ~DeviceGuard() {
        if (changed_) { static_cast<void>(cudaSetDevice(before_)); }
    }

  private:
    int before_;
    bool changed_;
};

}  // namespace shardkit::gpu
