// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/communicator.hpp>
#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/communicator.hpp>

namespace shardkit::nccl {

/// Returns the stream of CUDA's in which a rank computes, for kernels of your own. It is the rank's until its World
/// ends.
/// @throws UsageError for a rank of another engine
inline cudaStream_t stream(const Rank& rank, SourceLocation where = SourceLocation::current()) {
    return rank.compute_stream().native(where);
}

/// Returns a communicator of the user's over some of the World's ranks, for Rank::adopt. The World uses it and
/// does not destroy it.
///     rank.adopt(sk::Axes<sk::Dp>{}, sk::nccl::borrow(world, sk::nccl::Borrow{dp_comm}, "dp"));
/// @throws std::invalid_argument when it is on another GPU than the World or has more ranks
inline shardkit::Communicator borrow(World& world, Borrow borrowed, std::string_view axes,
                                     SourceLocation where = SourceLocation::current()) {
    return shardkit::Communicator(std::make_shared<const Communicator>(world, borrowed, axes, where));
}

/// Returns NCCL's own communicator, which the World owns; null after an abort, and for a group of one rank that was
/// split off. While the World has a verb under way, no call of yours may use it.
/// @throws UsageError for a communicator of another engine
inline ncclComm_t native(const shardkit::Communicator& comm, SourceLocation where = SourceLocation::current()) {
    const auto* const verbs = dynamic_cast<const Communicator*>(comm.verbs().get());
    if (verbs == nullptr) {
        throw_usage_error(where, "a communicator of the engine ", comm.engine_name(),
                          ", expected one of the engine nccl");
    }
    return verbs->native();
}

}  // namespace shardkit::nccl
