// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>

#include <cuda_runtime_api.h>

#include <shardkit/backend/nccl/registration.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/core/checked.hpp>

namespace shardkit::nccl {

// Checked builds compare more: see core/checked.hpp.
inline namespace SHARDKIT_BUILD {

/// How a World communicates. Sizes, timeout, registration, compare_calls and survivable the same on every rank.
struct Options {
    /// The user's streams, which outlive the World; null: the World makes streams of its own. Default streams are
    /// refused.
    cudaStream_t compute = nullptr;
    cudaStream_t communication = nullptr;

    /// The rank's GPU; -1: the one that is selected when the World is made.
    int device = -1;

    /// How long a rank waits for its peers: to connect, to take part in a call, and, whenever the host waits for a
    /// stream, for the work on it, the user's own included.
    std::chrono::milliseconds timeout = std::chrono::minutes(10);

    /// Memory for containers is taken from CUDA in chunks of at least so many bytes.
    std::size_t arena_chunk_bytes = std::size_t{64} << 20U;

    /// Memory in which sums of 16-bit elements are made in fp32, and maxima of floating ones collected.
    std::size_t staging_bytes = std::size_t{32} << 20U;

    /// What NCCL is told of these chunks.
    Registration registration = Registration::none;

    /// Whether ranks compare what they call, so that those who disagree are told which call of whom it was, where
    /// NCCL would hang or move the wrong bytes. Messages are not compared. Costs a second communicator for each
    /// group, on a stream of its own, and the host waits for each comparison; off costs nothing.
    CompareCalls compare_calls = checked ? CompareCalls::each_call : CompareCalls::off;

    /// A failure leaves the World's communicator to be shrunk to the ranks that are left: see Survivors. It is
    /// revoked where NCCL can do that (2.28.7); the communicators that were split off it are aborted. Needs
    /// NCCL 2.27.
    bool survivable = false;
};

}  // namespace SHARDKIT_BUILD

}  // namespace shardkit::nccl
