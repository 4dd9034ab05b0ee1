// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/rank/rank.hpp>

namespace shardkit::nccl SHARDKIT_FACE {

/// Returns the stream of CUDA's in which a rank computes (a cudaStream_t), for kernels of your own. It is the rank's
/// until its World ends.
/// @throws UsageError for a rank of another engine
inline CUstream_st* stream(const Rank& rank, SourceLocation where = SourceLocation::current()) {
    return rank.compute_stream().native(where);
}

/// Returns a communicator of the user's over some of the World's ranks, for Rank::adopt. The World uses it and
/// does not destroy it. Who calls it includes verbs.hpp.
///     rank.adopt(sk::Axes<sk::Dp>{}, sk::nccl::borrow(world, sk::nccl::Borrow{dp_comm}, "dp"));
/// @throws std::invalid_argument when it is on another GPU than the World or has more ranks
shardkit::Communicator borrow(World& world, Borrow borrowed, std::string_view axes,
                              SourceLocation where = SourceLocation::current());

/// Returns NCCL's own communicator, which the World owns; null after an abort, and for a group of one rank that was
/// split off. While the World has a verb under way, no call of yours may use it.
/// @throws UsageError for a communicator of another engine
ncclComm* native(const shardkit::Communicator& comm, SourceLocation where = SourceLocation::current());

}  // namespace SHARDKIT_FACE
