// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu {

/// Throws unless `code` is cudaSuccess. The runtime's last error of this thread is cleared first, so that the next
/// call that looks at it does not report this one again.
/// @throws Error with `call`, the runtime's text and the caller's line
inline void check(cudaError_t code, std::string_view call, SourceLocation where = SourceLocation::current()) {
    if (code == cudaSuccess) { return; }
    static_cast<void>(cudaGetLastError());
    throw Error(code, call, where);
}

}  // namespace shardkit::gpu
