// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit::nccl::detail {

/// Calls ncclCommShrink without the ranks in `lost`, to make a communicator with that configuration. Needs NCCL
/// 2.27.3.
inline ncclResult_t shrink([[maybe_unused]] ncclComm_t parent, [[maybe_unused]] std::span<const std::size_t> lost,
                           [[maybe_unused]] ncclConfig_t config, [[maybe_unused]] ncclComm_t* made) {
#if NCCL_VERSION_CODE >= 22703
    std::vector<int> ranks(lost.begin(), lost.end());
    return ncclCommShrink(parent, ranks.data(), static_cast<int>(ranks.size()), made, &config, NCCL_SHRINK_DEFAULT);
#else
    return ncclInvalidUsage;
#endif
}

/// Calls ncclCommRevoke (NCCL 2.28.7 and later), which ends the communicator's running work at once. Returns false if
/// it is not available or fails.
inline bool revoke([[maybe_unused]] ncclComm_t comm) noexcept {
#if NCCL_VERSION_CODE >= 22807
    int version = 0;
    if (ncclGetVersion(&version) == ncclSuccess && version >= 22807) {
        const ncclResult_t code = ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT);
        return code == ncclSuccess || code == ncclInProgress;
    }
#endif
    return false;
}

/// Returns the number of rank `rank` of `ranks` among the others than those in `lost`.
/// @throws std::invalid_argument for an empty list, or one that contains this rank, a rank twice or one that does
/// not exist
inline std::size_t place_among(std::span<const std::size_t> lost, std::size_t rank, std::size_t ranks,
                               SourceLocation where) {
    if (lost.empty()) { throw_invalid_argument(where, "nccl::Survivors: no rank is lost, expected at least one"); }
    std::vector<bool> is_lost(ranks);
    std::size_t before = 0;
    for (const std::size_t one : lost) {
        const char* const wrong = one >= ranks   ? "there is none"
                                  : one == rank  ? "it is this one"
                                  : is_lost[one] ? "it is named twice"
                                                 : nullptr;
        if (wrong != nullptr) {
            throw_invalid_argument(where, "nccl::Survivors: lost rank ", one, " of ", ranks, ": ", wrong,
                                   ", expected other ranks of the World, once each");
        }
        is_lost[one] = true;
        before += one < rank ? 1 : 0;
    }
    return rank - before;
}

}  // namespace shardkit::nccl::detail
