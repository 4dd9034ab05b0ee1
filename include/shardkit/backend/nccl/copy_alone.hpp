// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/call.hpp>

namespace shardkit::nccl::detail {

/// Does what a verb that moves elements is over a group of one rank, which may have no communicator of NCCL's.
/// @throws gpu::Error
template <class T>
void copy_alone(const Call& call, const T* from, std::size_t count, T* to, const gpu::TimelineRef& stream) {
    if (count == 0 || from == to) { return; }
    gpu::detail::check(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDeviceToDevice, stream.native()),
                       "cudaMemcpyAsync", call.where);
}

}  // namespace shardkit::nccl::detail
