// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <mutex>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/options.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit::nccl::detail {

/// The environment variable by which, before configured_order_version, NCCL starts its kernels of a GPU in the order
/// in which the host launches them, whatever their communicators.
inline constexpr const char* launch_order_variable = "NCCL_LAUNCH_ORDER_IMPLICIT";
/// The first NCCL that reads it.
inline constexpr int launch_order_version = 22600;
/// Returns whether a World's communicators say so themselves, in their configuration: whatever NCCL has read before,
/// and without a word to other communicators of the process.
inline bool configures_order() noexcept {
    int loaded = 0;
    return NCCL_VERSION_CODE >= configured_order_version && ncclGetVersion(&loaded) == ncclSuccess &&
           loaded >= configured_order_version;
}

/// Sets the variable to 1 where it is needed, unless the user has set it. To be called before the process's first
/// call of NCCL.
inline void order_launches() noexcept {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (!configures_order() && std::getenv(launch_order_variable) == nullptr) {
        ::setenv(launch_order_variable, "1", 0);
    }
}

/// Returns the options with the number of CTAs that lets two communicators run beside each other on the device, if
/// the World separates reductions, and does not say a number itself: together less than half of the SMs, which leaves
/// more than half to the products behind which both hide.
/// @throws std::invalid_argument when two communicators of the number that the user says do not fit on the device
///         beside one that compares calls, and NCCL does not order its launches: one that waits for a peer could keep
///         out the one for which the peer waits
inline Options with_room_for_two(Options options, int device, std::size_t ranks, SourceLocation where) {
    if (!options.separate_reductions || options.split_share || ranks == 1) { return options; }
    int units = 0;
    gpu::detail::check(cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device),
                       "cudaDeviceGetAttribute", where);
    if (options.max_ctas == 0) { options.max_ctas = std::clamp((units / 2 - 1) / 2, 1, most_ctas); }
    const char* const said = std::getenv(launch_order_variable);
    const bool ordered =
        said == nullptr ? configures_order() : std::atoi(said) != 0 && library_version(where) >= launch_order_version;
    if (!ordered && 2 * options.max_ctas >= units) {
        throw_invalid_argument(where, "nccl::Options: max_ctas is ", options.max_ctas,
                               ", of each of two communicators that run at once, but GPU ", device, " has ", units,
                               " SMs; expected less than half of them, separate_reductions off, or NCCL 2.26 with ",
                               launch_order_variable, "=1");
    }
    return options;
}

}  // namespace shardkit::nccl::detail
