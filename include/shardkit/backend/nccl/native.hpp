// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <cuda_runtime_api.h>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/communicator.hpp>
#include <shardkit/backend/nccl/world.hpp>

namespace shardkit::nccl {

/// Returns the stream of CUDA's in which a rank computes, for kernels of your own. It is the rank's until its World
/// ends.
template <class Rank>
cudaStream_t stream(const Rank& rank) noexcept {
    return rank.compute_stream().native();
}

/// Returns a communicator of the user's over some of the World's ranks, for Context::adopt. The World uses it and
/// does not destroy it.
///     rank.adopt(sk::Axes<sk::Dp>{}, sk::nccl::borrow<Engine>(world, sk::nccl::Borrow{dp_comm}, "dp"));
/// @throws std::invalid_argument when it is on another GPU than the World or has more ranks
template <class EngineType>
typename EngineType::Communicator borrow(World& world, Borrow borrowed, std::string_view axes,
                                         SourceLocation where = SourceLocation::current()) {
    return {world, borrowed, axes, where};
}

/// Returns NCCL's own communicator, which the World owns; null after an abort, and for a group of one rank that was
/// split off. While the World has a verb under way, no call of yours may use it.
template <class Kernels>
ncclComm_t native(const Communicator<Kernels>& comm) noexcept {
    return comm.native();
}

}  // namespace shardkit::nccl
