// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::gpu::detail {

/// Returns the device that this thread's calls use.
/// @throws Error
inline int current_device(SourceLocation where = SourceLocation::current()) {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice", where);
    return device;
}

/// Returns `device`, or the current device if it is -1.
/// @throws Error
inline int device_or_current(int device, SourceLocation where = SourceLocation::current()) {
    return device < 0 ? current_device(where) : device;
}

/// Returns the number of GPUs that this process sees.
/// @throws Error, also when there is no GPU or no driver
inline int device_count(SourceLocation where = SourceLocation::current()) {
    int count = 0;
    check(cudaGetDeviceCount(&count), "cudaGetDeviceCount", where);
    return count;
}

/// Returns whether this process has a context on the device, or true if that cannot be found out. From CUDA 12 on
/// cudaSetDevice makes one, which takes hundreds of megabytes of the device's memory: on a machine of eight ranks,
/// seven too many on device 0, which is selected in a thread that has selected none.
inline bool has_context(int device) noexcept {
    using State = CUresult(CUdevice, unsigned int*, int*);
    static State* const state_of = []() -> State* {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult result{};
        constexpr const char* name = "cuDevicePrimaryCtxGetState";
#if CUDART_VERSION >= 12050
        const cudaError_t code = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
#else
        const cudaError_t code = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
        if (code != cudaSuccess) { static_cast<void>(cudaGetLastError()); }
        return code == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<State*>(found)
                                                                            : nullptr;
    }();
    unsigned int flags = 0;
    int active = 1;
    return state_of == nullptr || state_of(device, &flags, &active) != CUDA_SUCCESS || active != 0;
}

/// Selects a device for this thread until the end of the scope, then the previous one again, unless this process has
/// no context there.
class DeviceGuard : shardkit::detail::NotCopied {
  public:
    /// Selects a device until the guard's end.
    /// @throws Error when there is no such device; the selection is then unchanged
    explicit DeviceGuard(int device, SourceLocation where = SourceLocation::current())
        : before_(current_device(where)), changed_(before_ != device) {
        if (changed_) { check(cudaSetDevice(device), "cudaSetDevice", where); }
    }
    /// Selects likewise where nothing may be thrown; an error leaves the selection as it is.
    DeviceGuard(int device, std::nothrow_t /*errors*/) noexcept
        : changed_(cudaGetDevice(&before_) == cudaSuccess && before_ != device &&
                   cudaSetDevice(device) == cudaSuccess) {}
    ~DeviceGuard() {
        if (changed_ && has_context(before_)) { static_cast<void>(cudaSetDevice(before_)); }
    }

  private:
    int before_ = 0;
    bool changed_;
};

/// Returns whether rank number `local_rank` of a machine has one of the `visible` GPUs: one GPU per rank, or each
/// rank sees only its own GPU, as with launchers that bind GPUs to processes.
constexpr bool has_device(std::size_t local_rank, int visible) noexcept {
    return visible == 1 || local_rank < static_cast<std::size_t>(visible);
}
/// Returns the GPU of rank number `local_rank` of a machine.
constexpr int device_of(std::size_t local_rank, int visible) noexcept {
    return visible == 1 ? 0 : static_cast<int>(local_rank);
}

}  // namespace shardkit::gpu::detail

namespace shardkit::gpu {

/// Returns the GPU of this machine's rank number `local_rank`: one GPU per rank, or the only one that this process
/// sees.
/// @throws std::invalid_argument when this machine has too few GPUs; Error when it has none
inline int local_device(std::size_t local_rank, SourceLocation where = SourceLocation::current()) {
    const int count = detail::device_count(where);
    if (!detail::has_device(local_rank, count)) {
        throw_invalid_argument(where, "local rank ", local_rank, ", but this machine has ", count,
                               " GPUs; expected a local rank below ", count);
    }
    return detail::device_of(local_rank, count);
}

}  // namespace shardkit::gpu
