// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit::gpu::detail {

inline cudaPointerAttributes pointer_attributes(const void* pointer, SourceLocation where) {
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, pointer), "cudaPointerGetAttributes", where);
    return attributes;
}
inline std::string describe(const cudaPointerAttributes& attributes) {
    if (attributes.type == cudaMemoryTypeDevice) {
        return shardkit::detail::concat("device memory of GPU ", attributes.device);
    }
    return attributes.type == cudaMemoryTypeManaged ? "managed memory" : "host memory";
}
/// Checks that a kernel or a collective of `device` can use the memory. Host memory, even if pinned, and memory of
/// another device are refused; managed memory is accepted. Zero bytes pass, whatever the pointer.
/// Cost:    a look-up in the driver's tables; does not wait and is allowed during a capture.
/// @throws std::invalid_argument that names `what`, what was given and what was expected; Error
inline void require_device_memory(const void* pointer, std::size_t bytes, int device, std::string_view what,
                                  SourceLocation where = SourceLocation::current()) {
    if (bytes == 0) { return; }
    const cudaPointerAttributes given = pointer_attributes(pointer, where);
    const bool own = given.type == cudaMemoryTypeDevice && given.device == device;
    if (!own && given.type != cudaMemoryTypeManaged) {
        throw_invalid_argument(where, what, ": ", pointer == nullptr ? "a null pointer" : describe(given),
                               " given, device memory of GPU ", device, " expected");
    }
}

/// Checks that the host can use the memory: memory of a device is refused. Zero bytes pass, whatever the pointer.
/// @throws std::invalid_argument that names `what`, what was given and what was expected; Error
inline void require_host_memory(const void* pointer, std::size_t bytes, std::string_view what,
                                SourceLocation where = SourceLocation::current()) {
    if (bytes == 0) { return; }
    if (pointer == nullptr) { throw_invalid_argument(where, what, ": a null pointer given, host memory expected"); }
    const cudaPointerAttributes given = pointer_attributes(pointer, where);
    if (given.type == cudaMemoryTypeDevice) {
        throw_invalid_argument(where, what, ": ", describe(given), " given, host memory expected");
    }
}

}  // namespace shardkit::gpu::detail
