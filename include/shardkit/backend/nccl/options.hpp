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

/// Says how a World communicates. Sizes, timeout, registration, separate_reductions, compare_calls and survivable the
/// same on every rank.
struct Options {
    /// Takes the user's streams, which outlive the World; null: the World makes streams of its own. Default streams
    /// are refused.
    cudaStream_t compute = nullptr;
    cudaStream_t communication = nullptr;

    /// Chooses the rank's GPU; -1: the one that is selected when the World is made.
    int device = -1;

    /// Limits how long a rank waits for its peers: to connect, to take part in a call, and, whenever the host waits
    /// for a stream, for the work on it, the user's own included: as long as none of the events between the streams
    /// happens, so that much work is no failure.
    std::chrono::milliseconds timeout = std::chrono::minutes(10);

    /// Limits how many verbs the host gives to the GPU before it waits for the first of them, at least 1: then it
    /// notices that a peer is gone, also in a loop that never waits otherwise. CUDA takes about 1,000 launches of a
    /// stream and blocks whoever gives it more, where nothing is noticed: what the user launches between so many
    /// verbs must stay below that. A launch of a CUDA graph counts by World::keep_pace.
    std::size_t verbs_ahead = 8;

    /// Limits how many CTAs, and so SMs, NCCL takes for a collective: at least, at most. 0: NCCL decides. More of
    /// them move more bytes a second and leave less of the GPU to the kernels beside.
    int min_ctas = 0;
    int max_ctas = 0;

    /// Names the communicators in NCCL's logs and profiles, from NCCL 2.27 on; a string that outlives the process's
    /// communicators, a literal for example. Null: none.
    const char* name = nullptr;

    /// Lets communicators that are split off share the World's connections and buffers (ncclConfig_t::splitShare):
    /// less memory of the GPU, and none of them can be aborted alone, so not for a survivable World. NCCL runs their
    /// work one after the other: nothing is gained by separate_reductions then, and it does nothing.
    bool split_share = false;

    /// Gives reductions a stream of their own, and a second communicator where gathers or a layer's verbs go over the
    /// same ranks, so that both run at once. Costs staging_bytes once more, and NCCL's memory for each such
    /// communicator, which it makes when a group of parameters asks for it first.
    bool separate_reductions = true;

    /// Sets the least bytes of the chunks in which memory for containers is taken from CUDA.
    std::size_t arena_chunk_bytes = std::size_t{64} << 20U;

    /// Sizes the memory in which sums of 16-bit elements are made in fp32, and maxima of floating ones collected.
    std::size_t staging_bytes = std::size_t{32} << 20U;

    /// Says what NCCL is told of these chunks.
    Registration registration = Registration::none;

    /// Lets ranks compare what they call, so that those who disagree are told which call of whom it was, where NCCL
    /// would hang or move the wrong bytes. Messages are not compared. Costs a second communicator for each group, on
    /// a stream of its own, and the host waits for each comparison; off costs nothing.
    CompareCalls compare_calls = checked ? CompareCalls::each_call : CompareCalls::off;

    /// Lets a failure leave the World's communicator to be shrunk to the ranks that are left: see Survivors. It is
    /// revoked where NCCL can do that (2.28.7); the communicators that were split off it are aborted. Needs
    /// NCCL 2.27.
    bool survivable = false;
};

}  // namespace SHARDKIT_BUILD

}  // namespace shardkit::nccl
