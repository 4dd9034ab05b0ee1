// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <cuda_runtime_api.h>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit::nccl {

/// What NCCL is told of the memory in which containers are.
enum class Registration : std::uint8_t {
    none,
    /// Chunks come from ncclMemAlloc and are registered with every communicator, so that NCCL may move data without
    /// copies of its own. NCCL may then add in another order. Needs NCCL 2.19.
    buffers,
    /// Chunks are symmetric windows of every communicator, for NCCL's kernels that read peers' memory at the same
    /// offset. Making a container is then collective: all ranks make the same ones in the same order, as they do for
    /// its verbs anyway. NCCL may add in another order. Needs NCCL 2.27.
    windows,
};

/// The first NCCL with ncclMemAlloc and ncclCommRegister.
inline constexpr int registration_version = 21901;
/// The first NCCL with ncclCommWindowRegister and ncclCommShrink.
inline constexpr int windows_version = 22703;

namespace detail {

/// Refuses a registration that the loaded NCCL is too old for.
/// @throws CommError, naming both versions, when NCCL is too old for it
inline void require_registration(Registration registration, SourceLocation where) {
    if (registration == Registration::buffers) { require_version(registration_version, "registered buffers", where); }
    if (registration == Registration::windows) { require_version(windows_version, "registered windows", where); }
}

}  // namespace detail

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

namespace shardkit::nccl::detail {

/// Refuses options that the loaded NCCL is too old for, and such that contradict each other.
/// @throws CommError when NCCL is older than `making` needs with these options; std::invalid_argument when they
/// contradict each other
inline void require_possible(const Options& options, std::string_view making, SourceLocation where) {
    require_version(minimum_version, making, where);
    require_registration(options.registration, where);
    if (options.survivable) { require_version(windows_version, "a survivable World", where); }
    if (options.survivable && options.split_share) {
        throw_invalid_argument(where,
                               "nccl::Options: split_share with survivable, but communicators that share "
                               "cannot be aborted alone");
    }
}

/// What NCCL is told of each communicator that a World makes: it does not block, also where it is made out of one
/// that does, so that the wait for peers can end. For the rest NCCL has its way, unless the options say otherwise.
inline ncclConfig_t config_of(const Options& options) {
    constexpr int most_ctas =
        64;  // MAXCHANNELS in NCCL's device.h; parseCommConfig refuses a minimum without a maximum
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (options.min_ctas > 0) { config.minCTAs = options.min_ctas; }
    if (options.min_ctas > 0 || options.max_ctas > 0) {
        config.maxCTAs = options.max_ctas > 0 ? options.max_ctas : most_ctas;
    }
    config.splitShare = options.split_share ? 1 : 0;
#if NCCL_VERSION_CODE >= 22703
    if (options.name != nullptr) { config.commName = options.name; }
#endif
    return config;
}

}  // namespace shardkit::nccl::detail
