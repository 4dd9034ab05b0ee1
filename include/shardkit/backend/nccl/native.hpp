// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/communicator.hpp>

namespace shardkit::nccl {

/// Returns the stream of CUDA's in which a rank computes, for kernels of your own. It is the rank's until its World
/// ends.
template <class Rank>
cudaStream_t stream(const Rank& rank) noexcept {
    return rank.compute_stream().native();
}

/// Returns NCCL's own communicator, which the World owns; null after an abort, and for a group of one rank that was
/// split off. While the World has a verb under way, no call of yours may use it.
template <class Kernels>
ncclComm_t native(const Communicator<Kernels>& comm) noexcept {
    return comm.native();
}

}  // namespace shardkit::nccl
